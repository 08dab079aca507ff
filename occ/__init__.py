"""Optimistic concurrency control: transactions, the decision log, and how a commit is validated, decided and published."""
