"""Process of a server's components: started, found again after a restart of the program, and replaced.

It stands for static Pods and their shims. So it has its own session, is unknown to systemd, and has a path below the
data directory that scripts find: <data>/data/<version>/bin/containerd-shim-runc-v2. Its settings are in one file, the
manifest. It is replaced only when the manifest has changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

import remuda
from remuda.lab.nano.configuration import Configuration
from remuda.lab.nano.host import NanoHost
from remuda.lab.nano.layout import NanoLayout, read_or_none, write_file
from remuda.lab.nano.program import COMPONENTS

log = logging.getLogger(__name__)

_STOP_SECONDS = 15.0
_LOOK_SECONDS = 0.05
# Settings of the node alone, which change no static Pod.
_OF_THE_NODE = frozenset({"node-label", "node-taint", "kubelet-arg", "server", "debug", "config"})


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that the components run with."""

    version: str
    values: dict[str, tuple[str, ...]]
    certificates: str = ""  # a digest: certificates are read at the start only


class _State(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    started: str  # distinguishes it from another process with the same pid
    manifest: str  # digest of its manifest


def manifest_of(configuration: Configuration, layout: NanoLayout, version: str) -> Manifest:
    digest = hashlib.sha256()
    for path in sorted(layout.tls.rglob("*.crt")):
        digest.update(path.relative_to(layout.tls).as_posix().encode() + b"\0" + path.read_bytes())
    values = {key: tuple(values) for key, values in sorted(configuration.values.items()) if key not in _OF_THE_NODE}
    return Manifest(version=version, values=values, certificates=digest.hexdigest())


def read_manifest(path: Path) -> Manifest:
    return msgspec.json.decode(path.read_bytes(), type=Manifest)


class ComponentProcess:
    def __init__(self, host: NanoHost, layout: NanoLayout, manifest: Manifest) -> None:
        self._layout = layout
        self._content = msgspec.json.encode(manifest)
        self._digest = hashlib.sha256(self._content).hexdigest()
        self._path = layout.agent / "pod-manifests" / "components.json"
        self._state_path = _state_path(layout)
        self._log = host.path("/var/log/pods") / "components.log"
        version = manifest.version.replace("+", "-")
        self._shim = layout.data / "data" / version / "bin" / "containerd-shim-runc-v2"
        self._child: subprocess.Popen[bytes] | None = None

    def lives(self) -> bool:
        if self._child is not None:
            return self._child.poll() is None
        state = self._state()
        return state is not None and started(state.pid) == state.started

    def is_current(self) -> bool:
        state = self._state()
        return state is not None and state.manifest == self._digest and self.lives()

    async def replace(self) -> None:
        await self.stop()
        self.start()

    def start(self) -> None:
        write_file(self._path, self._content)
        self._shim.parent.mkdir(parents=True, exist_ok=True)
        self._shim.unlink(missing_ok=True)
        self._shim.symlink_to(os.path.realpath(sys.executable))
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as written:
            self._child = subprocess.Popen(  # noqa: S603
                [str(self._shim), "-S", "-s", "-P", "-m", "remuda.lab.nano.rke2", COMPONENTS, str(self._path)],
                env=_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )
        state = _State(pid=self._child.pid, started=started(self._child.pid), manifest=self._digest)
        write_file(self._state_path, msgspec.json.encode(state))

    async def stop(self) -> None:
        state = self._state()
        if state is None:
            return
        until = time.monotonic() + _STOP_SECONDS
        number = signal.SIGTERM
        while self.lives():
            with suppress(ProcessLookupError):
                os.kill(state.pid, number)
            number = signal.SIGTERM if time.monotonic() < until else signal.SIGKILL
            await asyncio.sleep(_LOOK_SECONDS)
        self._child = None

    def _state(self) -> _State | None:
        return _load(self._state_path)


def outdate(layout: NanoLayout) -> None:
    """Have the next start of the program replace the process, whatever it runs with."""
    state = _load(_state_path(layout))
    if state is not None:
        write_file(_state_path(layout), msgspec.json.encode(msgspec.structs.replace(state, manifest="")))


def _state_path(layout: NanoLayout) -> Path:
    return layout.agent / "components.json"


def _load(path: Path) -> _State | None:
    content = read_or_none(path)
    return msgspec.json.decode(content, type=_State) if content is not None else None


def started(pid: int) -> str:
    """Return the start time of a process, in the kernel's units; empty when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def _environment() -> dict[str, str]:
    """Return the environment of the components: that of the unit, without the variables for systemd, and with the
    packages of this process."""
    dropped = ("NOTIFY_SOCKET", "REMUDA_HOST_UNIT", "INVOCATION_ID", "JOURNAL_STREAM")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    packages = [str(Path(folder).parent) for folder in remuda.__path__]
    kept["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*packages, *filter(None, sys.path)]))
    return kept
