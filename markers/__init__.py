"""Signs of work in progress: markers of data files, claims on file groups, heartbeats."""
