"""What upkeep leaves in a table, byte for byte as Java Hudi has it: cleans, savepoints, and the history of the timeline."""
