"""Data locks as one document, changed by compare-and-swap, for services without shared locks."""
