"""Recovery: rolling back, and finishing or removing what dead writers left."""
