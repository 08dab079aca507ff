"""Rows that the table has get new values: assignments, updates, and changes to rows by their places in the files."""
