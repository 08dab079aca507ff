"""Data locks for a write that outlives each of its Python processes: another process keeps them."""
