"""Which files a read may leave out, by what a condition says of partition values and of column ranges; never one too many."""
