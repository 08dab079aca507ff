"""Administration of locks: who holds them, what people did to them, and moving a table to another lock."""
