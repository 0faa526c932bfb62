"""Machines that somebody has already: directories of this one, on which the line of a registration Secret is run."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from pathlib import Path

from tests.lab.limits import LIMIT_SECONDS


class CustomHost:
    """`root` is its file system. Each has an address of its own, also beside those of other suites."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.root = folder / "root"
        self.root.mkdir()
        self.address = _free_address()
        tools = folder / "tools"
        tools.mkdir()
        (tools / "sudo").write_text('#!/bin/sh\nexec "$@"\n')  # whoever runs tests may do all that is needed here
        (tools / "sudo").chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "REMUDA_HOST_ROOT": str(self.root),
            "REMUDA_HOST_ADDRESS": self.address,
        }

    def run(self, line: str, retries: float = 60.0) -> subprocess.CompletedProcess[str]:
        """`retries`: for so many seconds it asks again a server that cannot be reached, or refuses it."""
        shell = shutil.which("dash") or "/bin/sh"
        return subprocess.run(
            [shell, "-c", line],
            env={**self._environment, "REMUDA_PATIENCE_SECONDS": f"{retries:.0f}"},
            capture_output=True,
            text=True,
            timeout=2 * LIMIT_SECONDS,
            check=False,
        )

    def uninstall(self, *variables: str) -> None:
        """The distribution, if there is one, then the agent: as the host's owner does it. `variables` are for the
        distribution's script: NAME=value."""
        local = self.root / "usr/local/bin"
        for script in ("nano-uninstall.sh", "nano-agent-uninstall.sh", "rke2-uninstall.sh"):
            if (local / script).exists():
                self.run(f"PATH={local}:$PATH {' '.join(variables)} {local / script}")
        if (local / "remuda-agent").exists():
            self.run(f"python3 {local / 'remuda-agent'} uninstall")


def _free_address() -> str:
    """An address of loopback whose API port nobody uses."""
    while True:
        address = f"127.{100 + secrets.randbelow(100)}.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
        with socket.socket() as probe:
            try:
                probe.bind((address, 6443))
            except OSError:
                continue
            return address
