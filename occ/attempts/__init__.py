"""The attempts of one operation: a rejected one is run again, and its good files are set aside for the next."""
