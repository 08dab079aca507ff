"""The command line, `lakelock`: checks, settings, commits, locks, markers, upkeep, savepoints, restoration."""
