"""Base files: Parquet as Hudi's writers leave it, written and read."""
