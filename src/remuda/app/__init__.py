"""Composition root: assembles the parts that one process runs."""


class AppError(Exception):
    """Base class of the exceptions of this package."""
