"""What servers and tests need from elsewhere: fetched once, pinned, and kept."""
