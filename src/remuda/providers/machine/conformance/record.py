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


class FileRecord:
    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def value(self) -> Mapping[str, Any]:
        try:
            found: dict[str, Any] = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return {}
        return found

    async def save(self, value: Mapping[str, Any]) -> None:
        async with SAVE:
            await asyncio.to_thread(self._write, msgspec.json.encode(value))

    def _write(self, content: bytes) -> None:
        self._path.parent.mkdir(exist_ok=True, mode=0o700)
        draft = self._path.with_suffix(".new")
        draft.write_bytes(content)
        os.replace(draft, self._path)
