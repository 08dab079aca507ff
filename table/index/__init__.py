"""Which file holds a record key: by look-up in base files, or by the bucket of the key."""
