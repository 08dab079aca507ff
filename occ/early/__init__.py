"""Early conflict detection: a transaction announces the file groups it will rewrite, and learns at once who else does."""
