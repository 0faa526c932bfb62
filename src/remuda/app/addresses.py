"""Addresses a command is told to listen on, and how they are spoken of."""

from __future__ import annotations

import os

Address = tuple[str, int]


def shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def why_not(error: OSError) -> str:
    """In the system's words; a resolver's errors have negative numbers and say it in words already."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)
