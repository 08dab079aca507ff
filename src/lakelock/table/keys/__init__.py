"""Record keys: what identifies a row, one row for each, and the keys whose files are known."""
