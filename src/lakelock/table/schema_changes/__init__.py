"""What may become of a table's columns: in place, by writing all rows again, or because two writers changed them at once."""
