"""Rewriting base files: the new rows, the changed and the deleted ones, and the kernels that users and simulator share."""
