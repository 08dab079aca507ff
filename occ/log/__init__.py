"""The decision log: what was decided, what became of each instant, and how a decided commit becomes visible."""
