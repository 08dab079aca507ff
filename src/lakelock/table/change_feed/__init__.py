"""The change feed: which rows commits inserted, updated and deleted, found by comparing file slices."""
