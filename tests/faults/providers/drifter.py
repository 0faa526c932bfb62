"""A driver of somebody else's, installed beside remuda: as `existing`, with two habits that none of ours has.

It knows no host key of its server, so the Job keeps the first one it sees; and each time it is asked, there is another
server in the place of the one before.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import msgspec

from remuda.providers.shared.drivers.existing import Existing
from remuda.providers.shared.drivers.spi import Needs, Order, Server

_REPOSITORY = Path(__file__).parent.parent.parent.parent


class Drifter(Existing):
    name: ClassVar[str] = "drifter"
    doc: ClassVar[str] = "Servers that are never the same."
    needs: ClassVar[Needs] = Needs(host_files=True)  # it counts in a file there

    async def create(self, order: Order, user_data: bytes) -> Server:
        server = await super().create(order, user_data)
        assert server.ssh is not None
        unknown = msgspec.structs.replace(server.ssh, host_keys=())
        number = await asyncio.to_thread(self._count, order.uid)
        return msgspec.structs.replace(server, id=f"{server.id}/{number}", ssh=unknown)

    def _count(self, uid: str) -> int:
        asked = self.context.directory / f"drifter-{uid}"
        with asked.open("a") as file:
            file.write(".")
        return asked.stat().st_size


def install(folder: Path) -> dict[str, str]:
    """As pip would; the environment of programs that are to find it."""
    place = folder / "drifter-1.0.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: drifter\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text(f"[remuda.drivers]\ndrifter = {__name__}:{Drifter.__name__}\n")
    return {"PYTHONPATH": f"{folder}:{_REPOSITORY}"}
