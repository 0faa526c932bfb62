"""Servers of nano in RKE2 mode on hosts that are folders: what runs there, and which of them are down at once."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from remuda.providers.shared.drivers.proc import members

UNIT = "rke2-server.service"
ETCD_METRICS = 2381
_PERIOD_SECONDS = 0.2
_SHIM = re.compile(r"/data/[^/]+/bin/containerd-shim")


class RkeHost:
    """A host by its root folder."""

    def __init__(self, root: Path, data: str = "/var/lib/rancher/rke2") -> None:
        self.root = root
        self.data = root / data.lstrip("/")
        units = root / "run/remuda-units"
        self.address = str(json.loads((units / "environment.json").read_text())["REMUDA_HOST_ADDRESS"])
        self._state = units / f"{UNIT}.json"

    @property
    def is_server(self) -> bool:
        return self._state.exists()

    @property
    def unit(self) -> dict[str, Any]:
        """What is known of its unit: `state`, `pid`, `runs`."""
        return dict(json.loads(self._state.read_text()))

    def components(self) -> list[int]:
        """Processes that stand for the shims of static Pods."""
        return [pid for pid in members(self.root) if self._is_shim(pid)]

    def _is_shim(self, pid: int) -> bool:
        try:
            program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        except OSError:
            return False
        return program.startswith(str(self.data)) and _SHIM.search(program) is not None

    def environment(self) -> set[str]:
        """Of the unit's program."""
        return set(Path(f"/proc/{self.unit['pid']}/environ").read_bytes().decode().split("\0"))

    def listener(self, port: int) -> int:
        """The process that listens on a port; 0: none."""
        address = "".join(f"{int(part):02X}" for part in reversed(self.address.split(".")))
        inodes = {
            fields[9]
            for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
            if fields[1] == f"{address}:{port:04X}" and fields[3] == "0A"
        }
        for pid in members(self.root):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                try:
                    target = os.readlink(descriptor)
                except OSError:
                    continue
                if target.startswith("socket:[") and target[8:-1] in inodes:
                    return pid
        return 0

    def is_down(self) -> bool:
        """The unit is not active, or nothing listens where etcd does. A busy machine may be slow to answer, so it is
        enough that a connection is accepted."""
        try:
            active = self.unit["state"] == "active"
        except (OSError, ValueError):
            return True
        with socket.socket() as probe:
            probe.settimeout(5)
            return not active or probe.connect_ex((self.address, ETCD_METRICS)) != 0


class Sample(NamedTuple):
    at: float
    down: frozenset[Path]


class Sampler:
    """Looks at servers every 0.2 s while it is entered."""

    def __init__(self, hosts: Iterable[RkeHost]) -> None:
        self.samples: list[Sample] = []
        self._hosts = list(hosts)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD_SECONDS):
            down = frozenset(host.root for host in self._hosts if host.is_down())
            self.samples.append(Sample(time.monotonic(), down))

    def together(self, hosts: Iterable[RkeHost], since: float = 0.0, until: float = float("inf")) -> list[Sample]:
        """Samples in which more than one of these servers was down."""
        roots = {host.root for host in hosts}
        return [one for one in self.samples if since <= one.at < until and len(one.down & roots) > 1]

    def seen_down(self) -> set[Path]:
        return {root for sample in self.samples for root in sample.down}
