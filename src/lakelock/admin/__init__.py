"""Lock administration: who holds locks, what people did to them, and moving a table to another lock."""
