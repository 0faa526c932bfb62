"""A driver's record in a file, where a Job would have it in a Secret: saving it is an act that can be the last one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from remuda.runtime.steps import step

SAVE = step("conformance.save-record", "a driver under test saves its record")

SAVE_KEY = step("conformance.save-private-key", "a driver under test saves a private key")


class FileRecord:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = path.with_suffix(".key")

    @property
    def value(self) -> Mapping[str, Any]:
        try:
            found: dict[str, Any] = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return {}
        return found

    @property
    def private_key(self) -> str:
        try:
            return self._key.read_text()
        except FileNotFoundError:
            return ""

    async def save(self, value: Mapping[str, Any]) -> None:
        async with SAVE:
            await asyncio.to_thread(_write, self._path, msgspec.json.encode(value))

    async def save_private_key(self, private_key: str) -> None:
        async with SAVE_KEY:
            await asyncio.to_thread(_write, self._key, private_key.encode())

    def lose(self) -> None:
        self._path.unlink(missing_ok=True)
        self._key.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True, mode=0o700)
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    os.replace(draft, path)
