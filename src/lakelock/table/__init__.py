"""Hudi tables, copy-on-write and merge-on-read: their files as values, and thin edges that read them from a `Storage`."""
