"""Upkeep alongside live writers: it keeps the cost of a table from growing with its history."""
