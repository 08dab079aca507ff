"""Avro, as Hudi keeps it in the timeline: containers, schemas and types."""
