"""The row engine without Spark: the same transactions and tasks on Arrow tables, in one process."""
