"""Which file holds a record key: found in the base files, or told by the bucket of the key."""
