"""Planted bugs (mutants, to readers who know mutation testing): what the simulator must find."""
