"""Rows as Arrow tables: their types, their record keys, one row per key, and the rewriting of base files."""
