"""Data locks: shared and exclusive locks on a table and its partitions, held for a whole write."""
