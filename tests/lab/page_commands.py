"""The commands that a page of the documentation tells its reader to type: the lines of its blocks marked `sh`."""

from __future__ import annotations

import re
from collections.abc import Mapping

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CONTINUED = re.compile(r"\\\n\s*")


def commands(page: str) -> list[str]:
    lines = [line for block in _BLOCK.findall(page) for line in _CONTINUED.sub(" ", block).splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]


def substituted(command: str, values: Mapping[str, str]) -> str:
    """Return a command with other addresses: whole ones, so that 192.0.2.1 is not found in 192.0.2.10."""
    for before, after in values.items():
        command = re.sub(rf"(?<![\w.]){re.escape(before)}(?![\w.]*\w)", after, command)
    return command
