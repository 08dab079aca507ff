"""Upkeep beside live writers: cleaning old files, archiving old instants, savepoints. Nothing here changes a row."""
