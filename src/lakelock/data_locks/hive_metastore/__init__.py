"""Data locks in the lock table of a Hive metastore."""
