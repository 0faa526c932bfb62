"""The composition root: which parts one process runs."""
