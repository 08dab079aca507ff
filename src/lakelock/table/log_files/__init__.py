"""Log files of merge-on-read tables: their blocks, what these change, and the rows of a file slice that has some."""
