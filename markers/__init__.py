"""Signs of work in progress: markers of data files, claims of file groups, heartbeats."""
