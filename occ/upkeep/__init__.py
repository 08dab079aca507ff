"""Upkeep beside live writers: what keeps the cost of a table from growing with its history."""
