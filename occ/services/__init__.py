"""Table services that rewrite rows in transactions of their own: joining small files, and restoring an earlier state."""
