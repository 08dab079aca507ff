"""Columns one by one: how names find them, which types are stored, and what a type may grow into."""
