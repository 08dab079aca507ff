"""What lakelock records in a table besides Hudi's own files: the decision log, the lock that guards it, the keys of commits."""
