"""Jobs that can be killed: a driver's create or remove in a separate process, ended by SIGKILL where the suite says.

One worker process imports the driver once and forks for each Job, which is cheap enough to kill at every crash point.
It has one thread and no open files but its pipes, so a fork is safe. Requests and answers are lines of JSON. A driver's
record is a file, where a Job would use a Secret: saving it can be the last act before a kill.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from remuda.providers.shared.drivers.spi import ClusterInfrastructure, ClusterOrder, Context, DriverError, Order, Server
from remuda.runtime.steps import crash_at, step

SAVE = step("conformance.save-record", "a driver under test saves its record")
SAVE_KEY = step("conformance.save-private-key", "a driver under test saves a private key")

_LONGEST_LINE = 16 * 1024 * 1024


class FileRecord:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._key = path.with_suffix(".key")

    @property
    def value(self) -> Mapping[str, Any]:
        try:
            found: dict[str, Any] = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return {}
        return found

    @property
    def private_key(self) -> str:
        try:
            return self._key.read_text()
        except FileNotFoundError:
            return ""

    async def save(self, value: Mapping[str, Any]) -> None:
        async with SAVE:
            await asyncio.to_thread(_write, self._path, msgspec.json.encode(value))

    async def save_private_key(self, private_key: str) -> None:
        async with SAVE_KEY:
            await asyncio.to_thread(_write, self._key, private_key.encode())

    def lose(self) -> None:
        self._path.unlink(missing_ok=True)
        self._key.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True, mode=0o700)
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    os.replace(draft, path)


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True):
    driver: str  # module:Class
    action: Literal["create", "ensure", "remove"]
    order: Order | None = None  # one of the two
    cluster: ClusterOrder | None = None
    user_data: bytes = b""
    credentials: Mapping[str, str]
    directory: str
    record: str
    answer: str  # the file it goes to
    crash_at: str = ""  # as REMUDA_CRASH_AT
    kill_after: float = 0.0  # seconds; 0: not by time


class WorkerResponse(msgspec.Struct, frozen=True, kw_only=True):
    killed: bool = False
    server: Server | None = None
    made: ClusterInfrastructure | None = None  # for a cluster
    error: str = ""  # error of a driver, for users
    broken: str = ""  # any other error
    seconds: float = 0.0


class Worker:
    """The suite's side of the worker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> Worker:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", f"from {__name__} import main; main()"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            env={**os.environ, "PYTHONPATH": path},  # a driver may be importable only in the tests
        )
        return cls(process)

    async def run(self, request: WorkerRequest) -> WorkerResponse:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        assert line, "the worker of the conformance suite has ended"
        return msgspec.json.decode(line, type=WorkerResponse)

    async def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


def main() -> None:
    for line in sys.stdin.buffer:
        answer = _serve(msgspec.json.decode(line, type=WorkerRequest))
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


def _serve(request: WorkerRequest) -> WorkerResponse:
    driver = _load(request.driver)  # imported once, before the fork
    path = Path(request.answer)
    path.unlink(missing_ok=True)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _job(request, driver, path)
    status = _wait(child, started, request.kill_after)
    if os.WIFSIGNALED(status):
        return WorkerResponse(killed=True)
    if not path.exists():
        return WorkerResponse(broken=f"the Job ended with {os.waitstatus_to_exitcode(status)} and no answer")
    answer = msgspec.json.decode(path.read_bytes(), type=WorkerResponse)
    return msgspec.structs.replace(answer, seconds=time.monotonic() - started)


def _load(name: str) -> type[Any]:
    module, _, attribute = name.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), attribute)
    return found


def _wait(child: int, started: float, kill_after: float) -> int:
    if not kill_after:
        return os.waitpid(child, 0)[1]
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() - started >= kill_after:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(0.002)


def _job(request: WorkerRequest, driver: type[Any], path: Path) -> None:
    """Run a Job in the child process; never return."""
    try:
        crash_at(request.crash_at)
        path.write_bytes(msgspec.json.encode(asyncio.run(_act(request, driver))))
        os._exit(0)
    except BaseException as error:
        path.write_bytes(msgspec.json.encode(WorkerResponse(broken=f"{type(error).__name__}: {error}")))
        os._exit(1)


async def _act(request: WorkerRequest, driver: type[Any]) -> WorkerResponse:
    context = Context(
        credentials=request.credentials,
        record=FileRecord(Path(request.record)),
        say=lambda text: None,
        directory=Path(request.directory),
    )
    order = request.cluster if request.order is None else request.order
    assert order is not None
    acting = driver(msgspec.convert(dict(order.options), driver.options_type), context)
    try:
        if request.action == "create":
            return WorkerResponse(server=await acting.create(order, request.user_data))
        if request.action == "ensure":
            return WorkerResponse(made=await acting.ensure(order))
        await acting.remove(order)
        return WorkerResponse()
    except DriverError as error:
        return WorkerResponse(error=str(error))
