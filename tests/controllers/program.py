"""The `remuda` command beside a test: a process, at the test's engine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.controllers.engine import PATIENCE_SECONDS, Engine


class Ended:
    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out.decode()
        self.err = err.decode()


async def remuda(
    engine: Engine, *arguments: str | Path, path: str = os.environ["PATH"], tmp: Path | None = None
) -> Ended:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "remuda.cli.main", *map(str, arguments)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(engine.kubeconfig), "PATH": path, "TMPDIR": str(tmp or "/tmp")},
    )
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    assert process.returncode is not None
    return Ended(process.returncode, out, err)
