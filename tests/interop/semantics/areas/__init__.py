"""The cases, one module per area."""

from __future__ import annotations

import importlib
import pkgutil


def load() -> None:
    """Imports every area, which registers its cases."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
