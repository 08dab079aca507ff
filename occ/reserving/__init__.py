"""Reservations: whoever has lost too often is served before those who come later (ADR 20)."""
