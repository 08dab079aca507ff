"""What upkeep stores in a table, byte for byte as Java Hudi does: cleans, savepoints, and the history of the timeline."""
