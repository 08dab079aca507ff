"""`LakeTable`: what a user of PySpark does with one table, by kind: writes, transactions, upkeep, facts."""
