"""Load balancer of a driver: the folder with its configuration, and its process.

The process has its own session, so it outlives the Job that started it and the manager. It is found by its environment
and its lock, never by a recorded process id. Every operation may be killed at any point and repeated.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from remuda.providers.shared.drivers import balancer, proc
from remuda.providers.shared.drivers.spi import DriverError
from remuda.runtime.steps import step

CONFIGURE = step("balancer.configure", "writes a load balancer's configuration")
START = step("balancer.start", "starts the process of a load balancer")
STOP = step("balancer.stop", "stops the process of a load balancer")

_LOOK_SECONDS = 0.05
_READY_SECONDS = 15.0
_MOST_STARTS = 3
_PATIENCE_SECONDS = 2.0  # with an error, which may be about the previous configuration
_GRACE_SECONDS, _LONGEST_END_SECONDS = 5.0, 15.0
_LOG = "balancer.log"


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    port: int
    healthy: bool
    connections: int


class BalancerReport(msgspec.Struct, frozen=True, kw_only=True):
    """`status.json`."""

    pid: int
    revision: str
    listening: Sequence[int]
    error: str
    backends: Sequence[Backend]


class Balancing:
    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.realpath(folder))  # as it will stand in the environment of the process

    async def ensure(self, address: str, ports: Sequence[int], backends: Sequence[str]) -> None:
        """Return once the balancer listens at the address and forwards to the backends. Raises DriverError."""
        config = {"address": address, "ports": list(ports), "backends": list(backends)}
        content = json.dumps(config, sort_keys=True).encode()
        if await asyncio.to_thread(self._config) != content:
            async with CONFIGURE:
                await asyncio.to_thread(_keep, self.folder / balancer.CONFIG, content)
        where = f"{address}, port {', '.join(map(str, ports))}"
        for _ in range(_MOST_STARTS):
            if not await asyncio.to_thread(self.runs):
                async with START:
                    await asyncio.to_thread(self._start)
            await self._until(balancer.revision(content), where)
            if await asyncio.to_thread(self.runs):  # it may have exited right after its report
                return
        raise DriverError(f"the load balancer at {where} exits right after its start: {self._last_words()}")

    async def stop(self) -> None:
        """Stop the balancer and return once its process has ended. Raises DriverError."""
        async with STOP:
            await self._end()

    def runs(self) -> bool:
        return proc.is_locked(self.folder / balancer.LOCK)

    def report(self) -> BalancerReport | None:
        """Return the balancer's last status report, or None if there is no readable one yet."""
        try:
            return msgspec.json.decode((self.folder / balancer.STATUS).read_bytes(), type=BalancerReport)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _config(self) -> bytes:
        try:
            return (self.folder / balancer.CONFIG).read_bytes()
        except FileNotFoundError:
            return b""

    def _start(self) -> None:
        """Start the load balancer by its file path: it imports nothing of this package, so it starts faster."""
        # The previous process's report must not be mistaken for the new one's.
        (self.folder / balancer.STATUS).unlink(missing_ok=True)
        with open(os.open(self.folder / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:
            subprocess.run(  # noqa: S603
                ["/bin/sh", "-c", '"$@" &', "sh", sys.executable, "-I", "-S", balancer.__file__, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.defpath, "LANG": "C.UTF-8", proc.ROOT_VARIABLE: str(self.folder)},
                cwd=self.folder,
                start_new_session=True,
                check=True,
            )

    async def _until(self, revision: str, where: str) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            said = await asyncio.to_thread(self.report)
            if said is not None and said.revision == revision and not said.error:
                return
            if said is not None and said.error and loop.time() > started + _PATIENCE_SECONDS:
                raise DriverError(f"the load balancer cannot listen at {where}: {said.error}")
            if loop.time() > started + _READY_SECONDS:
                raise DriverError(f"the load balancer at {where} does not answer; last output: {self._last_words()}")
            await asyncio.sleep(_LOOK_SECONDS)

    def _last_words(self) -> str:
        try:
            return (self.folder / _LOG).read_text(errors="replace")[-1000:].strip().replace("\n", " / ") or "none"
        except OSError:
            return "none"

    async def _end(self) -> None:
        loop = asyncio.get_running_loop()
        started, quiet = loop.time(), 0
        members = proc.HostProcesses(self.folder)
        while quiet < 2:  # a process that is just starting may be missing in the first check
            waited = loop.time() - started
            left = await asyncio.to_thread(members.end, hard=waited > _GRACE_SECONDS)
            if waited > _LONGEST_END_SECONDS:
                raise DriverError(
                    f"the load balancer of {self.folder.name} does not exit: {left or 'its lock is held'}"
                )
            starting = await asyncio.to_thread(self.runs)
            quiet = 0 if left or starting else quiet + 1
            await asyncio.sleep(_LOOK_SECONDS)


def _keep(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by the owner only."""
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    part.replace(path)
