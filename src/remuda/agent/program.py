"""The agent as a program: the file it runs from, and how it is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

# Neither the environment nor packages of this host have a say in what is imported.
_FLAGS = ("-I", "-S")

_NOT_FOR_DAEMONS = ("CATTLE_TOKEN",)


def own_path() -> str:
    """Return the path of the file this program runs from; empty when it is not a single file."""
    archive = getattr(globals().get("__loader__"), "archive", "")
    return os.path.abspath(archive) if archive else ""


def command(path: str, *arguments: str) -> list[str]:
    return [sys.executable, *_FLAGS, path, *arguments]


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """For what keeps running: without secrets of the installation, and with a bound on what threads set aside."""
    kept = {name: value for name, value in base.items() if name not in _NOT_FOR_DAEMONS}
    kept.setdefault("MALLOC_ARENA_MAX", "2")
    return kept
