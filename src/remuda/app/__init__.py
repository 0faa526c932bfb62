"""Composition root: assembles the parts that one process runs."""
