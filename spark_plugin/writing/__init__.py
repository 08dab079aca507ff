"""Writes in the user's Spark session: insert, upsert, delete and overwrite, stage by stage."""
