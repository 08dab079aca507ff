"""Histories of transactions over several tables, beside those of each table, and of readers of all tables at one moment."""
