"""Which partition a row is in: the folders of partitions, and the partition columns that are computed from others."""
