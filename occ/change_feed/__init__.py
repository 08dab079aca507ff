"""The change feed of an open table: which file slices to compare for a range of commits, and whether they are still there."""
