"""Hudi tables, version 9, copy-on-write: their files as values, and thin edges that read them from a `Storage`."""
