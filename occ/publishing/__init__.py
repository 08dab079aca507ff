"""What the log decided, shown on the timeline: what became of an instant, and publishing what others decided."""
