"""The services of locks, by the names of their providers."""
