"""Outcomes: what a committed transaction did, why one was rejected, and the history of the table."""
