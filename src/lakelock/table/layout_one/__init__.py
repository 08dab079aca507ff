"""Tables of layout 1, which Hudi had before 1.0: shown as if they had layout 2, their archive too. Read only."""
