"""A writer's own commit: what is pending, its validation under the lock, and its decision."""
