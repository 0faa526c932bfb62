"""Machines that somebody has already: directories of this one, on which the line of a registration Secret is run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class CustomHost:
    """`root` is its file system. Each has an address of its own."""

    def __init__(self, folder: Path, address: str = "127.99.0.1") -> None:
        folder.mkdir(exist_ok=True)
        self.root = folder / "root"
        self.root.mkdir()
        self.address = address
        tools = folder / "tools"
        tools.mkdir()
        (tools / "sudo").write_text('#!/bin/sh\nexec "$@"\n')  # whoever runs tests may do all that is needed here
        (tools / "sudo").chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "REMUDA_HOST_ROOT": str(self.root),
            "REMUDA_HOST_ADDRESS": address,
            "REMUDA_PATIENCE_SECONDS": "5",
        }

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        shell = shutil.which("dash") or "/bin/sh"
        return subprocess.run(
            [shell, "-c", line], env=self._environment, capture_output=True, text=True, timeout=60, check=False
        )

    def uninstall(self) -> None:
        """The distribution, if there is one, then the agent: as the host's owner does it."""
        local = self.root / "usr/local/bin"
        for script in ("nano-uninstall.sh", "nano-agent-uninstall.sh"):
            if (local / script).exists():
                self.run(f"PATH={local}:$PATH {local / script}")
        if (local / "remuda-agent").exists():
            self.run(f"python3 {local / 'remuda-agent'} uninstall")
