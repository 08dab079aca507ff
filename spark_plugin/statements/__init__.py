"""Statements in SQL: a text becomes an operation on one table, or is refused before any work."""
