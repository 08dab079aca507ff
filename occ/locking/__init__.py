"""Locks around a transaction: which lock guards the table, what it cost, and the data locks of an operation."""
