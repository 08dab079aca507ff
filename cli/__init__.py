"""The command line: `lakelock doctor`, `config`, `commits`, `locks`, `markers`, `audit`, `simulate`."""
