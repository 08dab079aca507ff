"""Bookings and seats: agents move bookings from flight to flight in both tables, and no reader sees half of a move."""
