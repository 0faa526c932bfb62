"""The fuzzed readers by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

Check = Callable[[bytes], None]

NAMES = tuple(sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py")))


def load(name: str) -> Check:
    """Return the check of a target."""
    check: Check = import_module(f"{__name__}.{name}").check
    return check
