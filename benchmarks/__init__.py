"""Programs that print ratios, each measured within one run, so that they travel between machines."""
