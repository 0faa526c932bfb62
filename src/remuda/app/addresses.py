"""Listening addresses of commands, and their text in messages."""

from __future__ import annotations

import os

Address = tuple[str, int]


def shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why_not(error: OSError) -> str:
    """Return the system's error message; a resolver's error has a negative number and its own message."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)
