"""What depends on the Spark session: its version, its confs, its progress, its jobs, and that it may be gone."""
