"""The lock in a Hive metastore, and the metastore client that it needs."""
