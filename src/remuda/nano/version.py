"""Which version this is: what the bundle it came in says.

A bundle has a file VERSION beside the package `remuda`. So an upgrade is what it is for K3s: other files, a restart.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import remuda

UNPACKED = "v1.36.3+nano0"  # of a source tree, which no bundle was made of
_SHAPE = re.compile(r"v\d+\.\d+\.\d+(-rc\d+)?\+nano\d+(-rc\d+)?")


def current() -> str:
    """NANO_VERSION says otherwise, for tests of upgrades without a bundle."""
    return os.environ.get("NANO_VERSION") or _bundled() or UNPACKED


def _bundled() -> str:
    for folder in remuda.__path__:
        try:
            text = (Path(folder).parent / "VERSION").read_text().strip()
        except OSError:
            continue
        if _SHAPE.fullmatch(text):
            return text
    return ""
