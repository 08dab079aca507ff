"""Conflicts: what transactions touched, what others committed meanwhile, and the rules that judge it."""
