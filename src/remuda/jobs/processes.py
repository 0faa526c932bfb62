"""Launcher that runs a Job's program as a process of this machine, in a private directory.

    DIRECTORY/<uid of the Pod>/root    what its volumes hold; the termination log
                               home    its HOME and working directory
                               log     its output, in segments (`log_file`)
                               kubeconfig

Credentials are on disk only while the program runs; the log stays until the Pod goes. The process dies with this one
(`supervisor`), and inherits of its environment only what is not secret.

Where this process is root, a program whose Job has no rights on this machine runs as a user of its own, another one in
each attempt, in a mount namespace in which the data directory holds nothing but its own directory.

Neither the command nor the environment comes from the Job. The interpreter runs isolated (`python -I`), so that no
variable and no file of the working directory can add code. It finds modules where this process does.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import shutil
import stat
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from remuda.jobs import COMMAND, DIRECTORY_VARIABLE, ROOT_VARIABLE
from remuda.jobs.decisions import CANNOT_START
from remuda.jobs.launcher import LaunchSpec
from remuda.jobs.log_file import LogReader
from remuda.jobs.pod_inputs import PodInputs
from remuda.jobs.pod_log import last_lines
from remuda.jobs.pods import LONGEST_MESSAGE
from remuda.runtime import steps

_INHERITED = (
    "PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    steps.VARIABLE, steps.ONCE_VARIABLE,  # for fault tests: a Job may be told to crash, as this process may
)  # fmt: skip
_LEAST_MEMORY = 256 * 1024 * 1024  # below this, Python and a cloud's SDK do not start
_NICE = 5
_REMUDA = "remuda.cli.main"
_SUPERVISOR = "remuda.jobs.supervisor"
_FIRST_USER = 0x70000000
_NAME = "remuda"
_TRIAL = "trial"  # directory of the program that tests whether a separate user works
# With -I the variable PYTHONPATH is not read: the path of this process is passed on as an argument.
_MAIN = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
# The trial opens its kubeconfig and imports what Jobs import: the user may not be able to read an interpreter or
# packages below /root.
_TRY = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); open(sys.argv[2]).close(); "
    "import remuda.cli.main, remuda.kube.http, remuda.providers.machine.job, remuda.providers.shared.jobs.ssh"
)

_COMPLAINTS = "supervisor.err"  # errors of the supervisor itself, apart from the program's output

log = logging.getLogger(__name__)


class Processes:
    needs_kubeconfig = True

    def __init__(self, directory: Path, hosts: Path, *, program: str = _REMUDA) -> None:
        """Configure the launcher. `program`: the module that replaces the container's command `remuda`."""
        self._directory = directory.absolute()
        self._hosts = hosts.absolute()
        self._program = program
        self._trying = asyncio.Lock()
        self._confines: bool | None = None  # None: not tried yet

    async def start(self, work: LaunchSpec) -> ProcessStarted:
        place = self._directory / work.uid
        user = 0 if work.privileged or not await self.can_confine() else _user(work.uid)
        await asyncio.to_thread(_lay_out, place, work, user)
        return await self._start(place, work, user, self._isolated(_MAIN, self._program, *COMMAND[1:]))

    async def _start(self, place: Path, work: LaunchSpec, user: int, command: Sequence[str]) -> ProcessStarted:
        order = {
            "command": command,
            "log": str(place / "log"),
            "memory": max(work.memory, _LEAST_MEMORY) if work.memory else 0,
            # The Job of a local driver resets its priority before it starts hosts, which only root may do.
            "nice": _NICE if os.geteuid() == 0 else 0,
            "confine": {"user": user, "hide": str(self._directory.parent), "show": str(place)} if user else None,
        }
        complaints = await asyncio.to_thread((place / _COMPLAINTS).open, "wb")
        with complaints:
            process = await asyncio.create_subprocess_exec(
                *self._isolated(_MAIN, _SUPERVISOR, msgspec.json.encode(order).decode()),
                stdin=PIPE, stdout=DEVNULL, stderr=complaints,
                env=self._environment(place, user), cwd=place / "home", start_new_session=True,
            )  # fmt: skip
        return ProcessStarted(process, place, work.termination_path)

    async def can_confine(self) -> bool:
        """Return True if programs can run as separate users. Tested once, with a program that does nothing."""
        if os.geteuid() != 0:
            return False
        async with self._trying:
            if self._confines is None:
                why = await self._try_to_confine()
                self._confines = not why
                if why:
                    log.warning("cannot run each Job as a separate user; Jobs run as the user of the manager: %s", why)
        return self._confines

    async def _try_to_confine(self) -> str:
        """Return why programs cannot be confined; empty if they can."""
        work = LaunchSpec(uid=_TRIAL, name=_TRIAL, materials=PodInputs(files={}, directories=()))
        place, user = self._directory / _TRIAL, _user(_TRIAL)
        try:
            await asyncio.to_thread(_lay_out, place, work, user)
            started = await self._start(place, work, user, self._isolated(_TRY, str(place / "kubeconfig")))
            code = await started.wait()
            output = last_lines(self.log(_TRIAL), 1, LONGEST_MESSAGE).strip()
        except OSError as error:
            return str(error)
        finally:
            await self.forget(_TRIAL)
        return output or f"the test program exited with code {code}" if code else ""

    def _isolated(self, code: str, *arguments: str) -> list[str]:
        """Return the command of an isolated interpreter. Its module path has no relative entries, which mean the
        working directory, and no directories that Jobs write to."""
        written = (self._directory, self._hosts)
        path = [entry for entry in sys.path if os.path.isabs(entry) and not _is_below(Path(entry), written)]
        return [sys.executable, "-I", "-u", "-c", code, msgspec.json.encode(path).decode(), *arguments]

    def _environment(self, place: Path, user: int) -> dict[str, str]:
        own = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        # no account has this uid, and asyncssh needs a user name
        named = {"LOGNAME": _NAME, "USER": _NAME} if user else {}
        return {
            **own,
            **named,
            "HOME": str(place / "home"),
            "TMPDIR": str(place / "tmp"),
            "KUBECONFIG": str(place / "kubeconfig"),
            ROOT_VARIABLE: str(place / "root"),
            DIRECTORY_VARIABLE: str(self._hosts),
        }

    def log(self, uid: str) -> LogReader | None:
        place = self._directory / uid / "log"
        return LogReader(place) if uid and place.is_dir() else None

    async def tidy(self, uid: str) -> None:
        await asyncio.to_thread(_remove_all_but_log, self._directory / uid)

    async def forget(self, uid: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self._directory / uid, True)

    async def sweep(self, known: set[str]) -> None:
        await asyncio.to_thread(_sweep, self._directory, known)


class ProcessStarted:
    def __init__(self, process: Process, place: Path, termination_path: str) -> None:
        self._process = process
        self._place = place
        self._root = place / "root"
        self._termination_path = termination_path

    @property
    def pid(self) -> int:
        """Return the process ID of the supervisor."""
        return self._process.pid

    async def wait(self) -> int:
        code = await self._process.wait()
        if code and self._complaint():
            return CANNOT_START
        return code if code >= 0 else 128 - code

    def terminate(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        # Close the lifeline instead of sending SIGKILL: only the supervisor can kill the whole process group, so it
        # must not be killed itself.
        if self._process.stdin is not None:
            self._process.stdin.close()

    def termination_message(self) -> str:
        """Return what the program wrote; if the supervisor could not start it, what the supervisor wrote."""
        return self._last_words() or self._complaint()

    def _last_words(self) -> str:
        try:
            with os.fdopen(_open_inside(self._root, self._termination_path), "rb") as file:
                return file.read(LONGEST_MESSAGE).decode("utf-8", "replace")
        except OSError:
            return ""

    def _complaint(self) -> str:
        """Return the error of a supervisor that could not start the program; empty once the program has printed."""
        if last_lines(LogReader(self._place / "log"), 1, 1):
            return ""
        try:
            text = (self._place / _COMPLAINTS).read_bytes()[-LONGEST_MESSAGE:].decode("utf-8", "replace").strip()
        except OSError:
            return ""
        return f"cannot start the program: {text.splitlines()[-1]}" if text else ""


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _user(uid: str) -> int:
    """Return an unused user ID: systemd allocates none in this range, and no account has such a high one."""
    return _FIRST_USER + int.from_bytes(hashlib.sha256(uid.encode()).digest()[:3])


def _open_inside(root: Path, path: str) -> int:
    """Open a regular file that the program may have replaced by anything: a link would be followed with the rights of
    this process. Raises OSError."""
    parts = PurePosixPath(path.lstrip("/")).parts
    if not parts or ".." in parts:
        raise OSError(errno.EINVAL, "not a path of a file")
    *folders, name = parts
    # Each folder is opened relative to the previous one and without following links: the program may have replaced any
    # of them.
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for one in folders:
            inner = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        # O_NONBLOCK: the open of a FIFO would block until another process opens it for writing.
        found = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)
    # Check the open file, not the path: processes that the program left behind could exchange the file in between.
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(errno.EINVAL, "not a regular file")
    return found


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _lay_out(place: Path, work: LaunchSpec, user: int) -> None:
    """Create the directory of an attempt, replacing leftovers. `user`: owner of all but the log; 0: this process."""
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
    if user:
        _give(place, user)


def _give(place: Path, user: int) -> None:
    # The user passes through the directory without listing it. The log stays the runner's, so that the program cannot
    # change it.
    place.chmod(0o711)
    for path in (place / "kubeconfig", *(place / name for name in ("root", "home", "tmp"))):
        os.chown(path, user, user)
        for inner in path.rglob("*"):
            os.chown(inner, user, user)


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
    for name in ("kubeconfig", _COMPLAINTS):
        (place / name).unlink(missing_ok=True)


def _sweep(directory: Path, known: set[str]) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in directory.iterdir():
        if place.name in known:
            _remove_all_but_log(place)
        else:
            shutil.rmtree(place, ignore_errors=True)
