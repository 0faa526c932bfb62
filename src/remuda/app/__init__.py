"""Composition root: assembles the parts that one process runs."""

from pathlib import Path

DATA_DIR = Path("remuda-data")  # default of `remuda up`, below the working directory


class AppError(Exception):
    """Base class of the exceptions of this package."""
