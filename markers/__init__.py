"""Signs that writers leave while they work: markers of data files, claims of file groups, heartbeats."""
