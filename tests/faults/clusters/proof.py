"""What the directories of hosts prove of those who used them, whatever the controllers believe: how many hosts there
have ever been, and which plans each of them has applied, in their order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

_LOOK_SECONDS = 0.1
_APPLIED = "root/var/lib/rancher/agent/applied"


class Witness:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._applied: dict[str, dict[str, str]] = {}  # host → time → checksum

    async def look(self) -> None:
        while True:
            await asyncio.to_thread(self._see)
            await asyncio.sleep(_LOOK_SECONDS)

    def hosts(self) -> list[str]:
        """That are there now."""
        if not self._folder.exists():
            return []
        return sorted(path.name for path in self._folder.iterdir() if not path.name.startswith("."))

    def complaints(self, hosts: int) -> list[str]:
        self._see()
        found = [
            f"{host} was given a plan again that another one had followed: {sums}"
            for host, applied in self._applied.items()
            if len(sums := [applied[when] for when in sorted(applied)]) != len(set(sums))
        ]
        if len(self._applied) != hosts:
            found.append(f"{len(self._applied)} hosts were made where {hosts} do: {', '.join(self._applied)}")
        return found

    def _see(self) -> None:
        for host in self.hosts():
            seen = self._applied.setdefault(host, {})
            for path in (self._folder / host / _APPLIED).glob("*.plan"):
                if path.name not in seen:
                    try:
                        seen[path.name] = msgspec.json.decode(path.read_bytes())["Checksum"]
                    except (OSError, msgspec.DecodeError):
                        continue  # it is just being written, or deleted
