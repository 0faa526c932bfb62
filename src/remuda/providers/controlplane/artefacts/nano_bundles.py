"""nano's artefacts, which nobody has to bring: they are made of this installation, in the moment a cluster wants them.

Packing takes seconds of a processor, so a process of its own does it, and no reconcile waits for it
(`installing.Bundles`). The same installation gives the same bytes: replicas that pack for themselves serve the same.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from remuda.providers.controlplane.artefacts import Artefact, Artefacts, BadArtefact, bundle

DISTRO = "nano"
VERSION = "v1.36.4+nano1"  # where nobody says which
_SECONDS = 120


def pack(store: Artefacts, version: str, *, replace: bool = False) -> list[Artefact]:
    """Raises BadArtefact."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / bundle.NAME
        bundle.build(version, made)
        return store.add(DISTRO, version, bundle.architecture(), {bundle.NAME: made}, replace=replace)


class Packing(Artefacts):
    """Artefacts as they are kept, and nano as it is wanted."""

    async def pack(self, distro: str, version: str, *, replace: bool = False) -> None:
        """Raises BadArtefact. Who gives up waiting ends the packing."""
        if distro != DISTRO:
            raise BadArtefact(f"cannot pack {distro}: only {DISTRO} can be packed from this installation")
        try:
            words = (str(self._directory), version, *(["replace"] if replace else []))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", __name__, *words, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise BadArtefact(f"{sys.executable}: {error.strerror}") from None
        try:
            async with asyncio.timeout(_SECONDS):
                _, said = await process.communicate()
        except TimeoutError:
            raise BadArtefact(f"packing took longer than {_SECONDS} seconds") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise BadArtefact(next(reversed(said.decode("utf-8", "replace").split("\n")[:-1]), "it reports no cause"))


if __name__ == "__main__":
    try:
        pack(Artefacts(Path(sys.argv[1])), sys.argv[2], replace="replace" in sys.argv[3:])
    except BadArtefact as error:
        sys.exit(str(error))
