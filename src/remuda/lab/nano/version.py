"""Version of this program, read from the bundle it was installed with.

A bundle has a file VERSION beside the package `remuda`. So an upgrade works as it does for K3s: other files, a restart.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import remuda
from remuda.lab.nano.flavour import Flavour

_SHAPE = re.compile(r"v\d+\.\d+\.\d+(-rc\d+)?\+[a-z0-9]+(-rc\d+)?")


def current(flavour: Flavour) -> str:
    """NANO_VERSION says otherwise, for tests of upgrades without a bundle."""
    return os.environ.get("NANO_VERSION") or _bundled() or flavour.unpacked


def _bundled() -> str:
    for folder in remuda.__path__:
        try:
            text = (Path(folder).parent / "VERSION").read_text().strip()
        except OSError:
            continue
        if _SHAPE.fullmatch(text):
            return text
    return ""
