"""`lakelock doctor`: what it examines, one check a function, and the command that runs them all."""
