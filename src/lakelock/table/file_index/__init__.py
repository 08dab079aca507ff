"""The file index: which files make up a table according to its commits, kept as a checkpoint and the commits after it."""
