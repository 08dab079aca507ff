"""The lock next to the table: a file that is changed by conditional writes."""
