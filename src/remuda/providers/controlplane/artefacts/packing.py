"""nano's artefacts, which nobody has to bring: they are made of this installation, in the moment a cluster wants them.

Packing takes seconds of a processor, so a process of its own does it, and whoever looks waits for it. The same
installation gives the same bytes: replicas that pack for themselves serve the same.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from remuda.providers.controlplane.artefacts import Artefact, Artefacts, bundle

log = logging.getLogger(__name__)

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
    """Artefacts as they are kept, and nano as it is wanted. `lookup` may take its time: not for an event loop."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._one_at_a_time = threading.Lock()

    def lookup(self, distro: str, version: str) -> dict[str, dict[str, str]]:
        if distro != DISTRO:
            return super().lookup(distro, version)
        with self._one_at_a_time:
            found = super().lookup(distro, version)
            if found:
                return found
            self._pack(version)
            return super().lookup(distro, version)

    def _pack(self, version: str) -> None:
        """What went wrong is in the log; whoever looked finds nothing, and looks again."""
        command = [sys.executable, "-m", __name__, str(self._directory), version]
        try:
            done = subprocess.run(  # noqa: S603 - our own
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("%s %s cannot be packed: %s", DISTRO, version, error)
            return
        if done.returncode:
            why = done.stderr.strip().splitlines()[-1:] or ["no word of it"]
            log.warning("%s %s cannot be packed: %s", DISTRO, version, why[0])


if __name__ == "__main__":
    pack(Artefacts(Path(sys.argv[1])), sys.argv[2])
