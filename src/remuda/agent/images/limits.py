"""Size limits of an image. Everything written is counted, so a decompression bomb fails before the disk is full.

`REMUDA_IMAGE_LIMIT_BYTES` and `REMUDA_IMAGE_LIMIT_ENTRIES` in the agent's environment change the limits of one image.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from remuda.agent.images.errors import ImageError

BYTES = 16 << 30
ENTRIES = 500_000


class Allowance:
    """Remaining part of the limits of one image."""

    def __init__(self, limit: int = BYTES, entries: int = ENTRIES) -> None:
        self.limit = limit
        self.entries = entries
        self._bytes = limit
        self._entries = entries

    def take(self, amount: int) -> None:
        self._bytes -= amount
        if self._bytes < 0:
            raise ImageError(
                f"the image takes more than {self.limit} bytes when unpacked; REMUDA_IMAGE_LIMIT_BYTES allows more"
            )

    def entry(self) -> None:
        self._entries -= 1
        if self._entries < 0:
            raise ImageError(f"the image has more than {self.entries} files; REMUDA_IMAGE_LIMIT_ENTRIES allows more")


def allowance(environment: Mapping[str, str] = os.environ) -> Allowance:
    return Allowance(
        _number(environment, "REMUDA_IMAGE_LIMIT_BYTES", BYTES),
        _number(environment, "REMUDA_IMAGE_LIMIT_ENTRIES", ENTRIES),
    )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise ImageError(f"{name} is not a number")
    return int(text)
