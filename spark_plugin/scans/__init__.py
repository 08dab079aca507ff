"""Frames over exactly the files of a snapshot, on Spark's own Parquet reader."""
