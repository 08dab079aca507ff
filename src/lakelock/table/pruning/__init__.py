"""Which files a read may skip, from a condition, partition values and column ranges; never one too many."""
