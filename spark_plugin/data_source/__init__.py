"""`format("lakelock")`: reading and writing through Spark's Python data sources."""
