"""The file index: which files make up a table by what its commits say, kept as a checkpoint and the commits after it."""
