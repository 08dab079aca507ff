"""Merge: a data frame compared with the table, and clauses that say what becomes of the rows on both sides."""
