"""Locks around a transaction: what the commit lock cost, and the data locks of an operation."""
