"""Rows as Arrow tables: their types, their record keys, one row per key, and rows that lack columns."""
