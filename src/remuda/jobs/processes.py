"""Runs a Job's program as a process of this machine, below a directory of its own that nobody else can read.

    DIRECTORY/<uid of the Pod>/root    what its volumes hold; the termination log
                               home    its HOME and working directory
                               log     its output, in segments (`logfile`)
                               kubeconfig

Credentials are on disk only while the program runs; the log stays until the Pod goes. The process dies with this one
(`guardian`), and inherits of its environment only what is not secret.

Neither the command nor the environment comes from the Job. The interpreter runs isolated (`python -I`), so that no
variable and no file of the working directory can add code. It finds modules where this process does.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path

import msgspec

from remuda.jobs import COMMAND, DIRECTORY_VARIABLE, ROOT_VARIABLE
from remuda.jobs.launching import Work
from remuda.jobs.logfile import Reader
from remuda.jobs.pods import LONGEST_MESSAGE
from remuda.runtime import steps

_INHERITED = (
    "PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    steps.VARIABLE, steps.ONCE_VARIABLE,  # of fault tests: a Job may be told to die as this process may
)  # fmt: skip
_LEAST_MEMORY = 256 * 1024 * 1024  # below that Python and a cloud's SDK do not even start
_NICE = 5
_REMUDA = "remuda.cli.main"
_GUARDIAN = "remuda.jobs.guardian"
# With -I the variable PYTHONPATH is not read: the path of this process is passed on as an argument.
_MAIN = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


class Processes:
    needs_kubeconfig = True

    def __init__(self, directory: Path, hosts: Path, *, program: str = _REMUDA) -> None:
        """`program`: the module that the command `remuda` of a container means here."""
        self._directory = directory
        self._hosts = hosts
        self._program = program

    async def start(self, work: Work) -> ProcessStarted:
        place = self._directory / work.uid
        await asyncio.to_thread(_lay_out, place, work)
        order = {
            "command": self._isolated(self._program, *COMMAND[1:]),
            "log": str(place / "log"),
            "memory": max(work.memory, _LEAST_MEMORY) if work.memory else 0,
            "nice": _NICE if os.geteuid() == 0 else 0,  # nobody else could take it back
        }
        process = await asyncio.create_subprocess_exec(
            *self._isolated(_GUARDIAN, msgspec.json.encode(order).decode()), stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL,
            env=self._environment(place), cwd=place / "home", start_new_session=True,
        )  # fmt: skip
        return ProcessStarted(process, _below(place / "root", work.termination_path))

    def _isolated(self, module: str, *arguments: str) -> list[str]:
        """Never with relative entries, which mean the working directory, nor with places that Jobs write to."""
        written = (self._directory.absolute(), self._hosts.absolute())
        path = [entry for entry in sys.path if os.path.isabs(entry) and not _is_below(Path(entry), written)]
        return [sys.executable, "-I", "-u", "-c", _MAIN, msgspec.json.encode(path).decode(), module, *arguments]

    def _environment(self, place: Path) -> dict[str, str]:
        own = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return {
            **own,
            "HOME": str(place / "home"),
            "TMPDIR": str(place / "tmp"),
            "KUBECONFIG": str(place / "kubeconfig"),
            ROOT_VARIABLE: str(place / "root"),
            DIRECTORY_VARIABLE: str(self._hosts),
        }

    def log(self, uid: str) -> Reader | None:
        place = self._directory / uid / "log"
        return Reader(place) if uid and place.is_dir() else None

    async def tidy(self, uid: str) -> None:
        await asyncio.to_thread(_remove_all_but_log, self._directory / uid)

    async def forget(self, uid: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self._directory / uid, True)

    async def sweep(self, known: set[str]) -> None:
        await asyncio.to_thread(_sweep, self._directory, known)


class ProcessStarted:
    def __init__(self, process: Process, termination_log: Path) -> None:
        self._process = process
        self._termination_log = termination_log

    @property
    def pid(self) -> int:
        """Of its guardian."""
        return self._process.pid

    async def wait(self) -> int:
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def termination_message(self) -> str:
        try:
            with self._termination_log.open("rb") as file:
                return file.read(LONGEST_MESSAGE).decode("utf-8", "replace")
        except OSError:
            return ""


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _lay_out(place: Path, work: Work) -> None:
    """Whatever a killed start has left is written over."""
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in (place, *(place / name for name in ("root", "home", "tmp", "log"))):
        folder.mkdir(mode=0o700)
    root = place / "root"
    for path in work.materials.directories:
        _folder(_below(root, path))
    for path, file in work.materials.files.items():
        _write(_below(root, path), file.content, file.mode | 0o600)
    if work.termination_path:
        _write(_below(root, work.termination_path), b"", 0o600)
    _write(place / "kubeconfig", work.kubeconfig, 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    _folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _remove_all_but_log(place: Path) -> None:
    for name in ("root", "home", "tmp"):
        shutil.rmtree(place / name, ignore_errors=True)
    (place / "kubeconfig").unlink(missing_ok=True)


def _sweep(directory: Path, known: set[str]) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in directory.iterdir():
        if place.name in known:
            _remove_all_but_log(place)
        else:
            shutil.rmtree(place, ignore_errors=True)
