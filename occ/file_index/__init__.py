"""The file index of an open table: the newest checkpoint, the commits after it, and the next checkpoint when it is due."""
