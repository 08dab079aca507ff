"""One annotated settings file for each lock provider."""
