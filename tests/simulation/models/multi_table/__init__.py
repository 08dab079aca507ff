"""Transactions over several tables, searched exhaustively: `model` puts the parts together."""
