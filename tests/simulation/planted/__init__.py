"""Planted bugs (mutants): what the simulator must find."""
