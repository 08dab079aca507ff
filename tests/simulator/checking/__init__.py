"""What must hold of a simulated history, while it runs and at its end."""
