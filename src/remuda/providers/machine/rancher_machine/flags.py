"""Options of a driver, read from its own program over the plugin protocol of docker-machine.

The program is started as a plugin, answers three calls and is always stopped afterwards. It is third-party code: it
gets an empty environment, runs as nobody where that is possible, and has a short time limit.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from remuda.providers import ProviderError
from remuda.providers.machine.options import Flag, FlagType
from remuda.providers.machine.rancher_machine.gob import Decoder, Encoder, GobError, InterfaceValue
from remuda.providers.machine.rancher_machine.program import Program

_START_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_END_SECONDS = 2.0
_TOKEN = "42"  # noqa: S105  what plugins want to see before they believe that they are called as such
_SERVICES = ("RPCServerDriver", "RpcServerDriver")  # the second one is what old plugins are called
_VERSION = 1
_NOBODY = 65534
_LONGEST_LINE = 1024

_TYPES: dict[str, FlagType] = {
    "StringFlag": "string",
    "IntFlag": "integer",
    "BoolFlag": "boolean",
    "StringSliceFlag": "strings",
}


class NoFlags(ProviderError):
    """The program does not report its options; the message says what it did instead."""


async def read(program: Program) -> list[Flag]:
    """Raises NoFlags."""
    return await asyncio.to_thread(_read, program)


def _read(program: Program) -> list[Flag]:
    with _started(program) as (host, port):
        try:
            with socket.create_connection((host, port), timeout=_ANSWER_SECONDS) as connection:
                return _ask(_Calls(connection), program)
        except (OSError, GobError) as error:
            raise NoFlags(f"cannot query the program of driver {program.driver}: {error}") from None


def _ask(calls: _Calls, program: Program) -> list[Flag]:
    calls.find_service()
    version = calls.call("GetVersion")
    if version != _VERSION:
        raise NoFlags(f"the program of driver {program.driver} uses version {version} of the plugin protocol")
    flags = calls.call("GetCreateFlags")
    try:
        calls.call("Close")
    except (OSError, GobError, NoFlags):
        pass  # it may end before it has answered
    if not isinstance(flags, list):
        raise NoFlags(f"the program of driver {program.driver} does not return a list of flags")
    return [flag_of(flag) for flag in flags]


def flag_of(found: Any) -> Flag:
    """Parse a flag. Raise NoFlags if it is invalid."""
    name = found.type.rpartition(".")[2] if isinstance(found, InterfaceValue) else ""
    if name not in _TYPES or not isinstance(found.value, dict):
        raise NoFlags(f"the driver has a flag of an unknown type: {name or found!r}")
    value = found.value
    default = value.get("Value")
    return Flag(
        name=str(value.get("Name", "")),
        type=_TYPES[name],
        doc=str(value.get("Usage", "")).strip(),
        default=[str(item) for item in default] if isinstance(default, list) else default,
        env=str(value.get("EnvVar", "")),
    )


class _Calls:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._encoder = Encoder()
        self._decoder = Decoder()
        self._service = _SERVICES[0]
        self._until = time.monotonic() + _ANSWER_SECONDS
        connection.sendall(b"CONNECT /_goRPC_ HTTP/1.0\r\n\r\n")
        greeting = b""
        while not greeting.endswith(b"\n\n"):
            greeting += self._receive(1)
            if len(greeting) > _LONGEST_LINE:
                break
        if b"200 Connected to Go RPC" not in greeting:
            raise NoFlags("the driver's program does not speak the plugin protocol")

    def find_service(self) -> None:
        """Find the name of the RPC service, which old plugins spell differently."""
        for service in _SERVICES:
            self._service = service
            try:
                self.call("DriverName")
                return
            except NoFlags:
                if service == _SERVICES[-1]:
                    raise

    def call(self, method: str) -> Any:
        self._connection.sendall(self._encoder.call(f"{self._service}.{method}"))
        values: list[Any] = []
        while len(values) < 2:  # the head of the answer, then the answer
            values += self._decoder.feed(self._receive(2**16))
        head, answer = values
        if error := head.get("Error", "") if isinstance(head, dict) else "no answer":
            raise NoFlags(f"the driver's program rejects {method}: {error}")
        return answer

    def _receive(self, most: int) -> bytes:
        left = self._until - time.monotonic()
        if left <= 0:
            raise NoFlags("timed out waiting for the driver's program")
        self._connection.settimeout(left)
        received = self._connection.recv(most)
        if not received:
            raise NoFlags("the driver's program exited before it answered")
        return received


# ---- the program ----------------------------------------------------------------------------------------------------


@contextmanager
def _started(program: Program) -> Iterator[tuple[str, int]]:
    """Start the plugin and yield the address that it listens on; stop it afterwards."""
    path = program.plugin or program.machine
    with tempfile.TemporaryDirectory(prefix="remuda-driver-") as home:
        os.chmod(home, 0o777)  # noqa: S103  it holds nothing, and its user may be nobody
        environment = {
            "MACHINE_PLUGIN_TOKEN": _TOKEN,
            "MACHINE_PLUGIN_DRIVER_NAME": program.driver,
            "HOME": home,
            "PATH": os.defpath,
        }
        try:
            process = subprocess.Popen(  # noqa: S603
                [str(path)],
                env=environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                **_as_nobody(path),
            )
        except OSError as error:
            raise NoFlags(f"cannot start the program {path}: {error.strerror}") from None
        try:
            yield _address(process, program)
        finally:
            _end(process)


def _as_nobody(path: Path) -> dict[str, Any]:
    if os.geteuid() != 0 or not _open_to_all(path):
        return {}
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}


def _open_to_all(path: Path) -> bool:
    whole = path.resolve()
    return all(os.stat(place).st_mode & stat.S_IXOTH for place in (whole, *whole.parents))


def _address(process: subprocess.Popen[bytes], program: Program) -> tuple[str, int]:
    """Return the address, which is the first line that the plugin prints."""
    assert process.stdout is not None
    until = time.monotonic() + _START_SECONDS
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        piece = os.read(process.stdout.fileno(), 1) if ready else b""
        if not piece or len(line) > _LONGEST_LINE:
            why = "prints nothing" if not ready else "exits at once"
            raise NoFlags(f"the program of driver {program.driver} {why} when it is started as a plugin")
        line += piece
    host, _, port = line.decode(errors="replace").strip().rpartition(":")
    if host not in ("127.0.0.1", "localhost", "[::1]") or not port.isdigit():
        raise NoFlags(f"the program of driver {program.driver} does not report its address: {line[:80]!r}")
    return host.strip("[]"), int(port)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS if process.poll() is None else 0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
