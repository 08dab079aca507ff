"""Transactions over several tables, and reads of several tables at one moment: `docs/adr/0021`."""
