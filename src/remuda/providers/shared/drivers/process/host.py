"""The directory of a process host, and the script that runs in it.

    <name>/host.json     who it is: there from the first moment to the last
           root/         its file system
           script        the bootstrap script, as it came
           script.log    what it prints
           script.lock   locked as long as it runs
           script.exit   how it ended

A directory comes into being whole, by a rename, and `host.json` is the last thing deleted: whatever is left by somebody
who was killed says whose it is. That the script runs is told by a lock its process holds: the lock goes when the
process goes, however it does, so no script is ever started twice at a time nor taken for alive when it is not.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import ipaddress
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from remuda.providers import ProviderError
from remuda.providers.shared.drivers import proc
from remuda.providers.shared.drivers.spi import (
    TAG_CLUSTER,
    TAG_MACHINE,
    TAG_OWNER,
    TAG_UID,
    BadOptions,
    DriverError,
    ServerState,
)

NETWORK = ipaddress.IPv4Network("127.64.0.0/10")  # addresses of hosts

P = ParamSpec("P")
T = TypeVar("T")

_DETAILS = "host.json"
_NEW = ".new-"
_LONGEST_LINE = 4096
_MOST_READ = 1024 * 1024
_LAST_LINES = 5
_MOST_TAIL = 16 * 1024

ADDRESS_VARIABLE = "REMUDA_HOST_ADDRESS"
_KEPT = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "TZ")

# The first shell ends at once. The second keeps the lock, which came as standard input, until the script has ended and
# how it did is written down; the script and what it starts do not get hold of it. Limits of the Job are not the host's.
_RUN = """
exec 9<&0 </dev/null
for each in -d -v; do ulimit -S "$each" "$(ulimit -H "$each")"; done 2>/dev/null
(
    "$1" 9<&-
    echo $? >"$2.new" && mv "$2.new" "$2"
) &
"""


class NameTaken(ProviderError):
    """Error: another host or balancer already has the name or the address."""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    hostname: str
    address: str
    tags: Mapping[str, str]
    balancer: bool = False  # it is no host but a balancer: its root is the balancer's folder


class Output:
    """Output of the bootstrap script, line by line, from its beginning."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self, *, ended: bool = False) -> list[str]:
        """Return the lines printed since the last call; an unterminated line only when no more output can come."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                fresh = file.read(_MOST_READ)
        except FileNotFoundError:
            return []
        whole = len(fresh) if ended or len(fresh) == _MOST_READ else fresh.rfind(b"\n") + 1
        self._offset += whole
        return [line[:_LONGEST_LINE].decode(errors="replace") for line in fresh[:whole].splitlines()]


class ProcessHost:
    """One host, there or not. Everything here may block for a moment: it is called in a thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.name = directory.name
        self.root = directory / "root"
        self._script = directory / "script"
        self._log = directory / "script.log"
        self._lock = directory / "script.lock"
        self._exit = directory / "script.exit"

    def details(self) -> Details | None:
        """Return the host's details; None if the host does not exist."""
        try:
            return msgspec.json.decode((self.directory / _DETAILS).read_bytes(), type=Details)
        except FileNotFoundError:
            return None

    def state(self) -> ServerState:
        if self.script_runs():
            return "starting"
        code = self.exit_code()
        if code is None:
            return "starting"  # incomplete: the next create continues it
        if code != 0:
            return "failed"
        return "running" if proc.members(self.root) else "stopped"

    def needs_start(self) -> bool:
        return not self.script_runs() and (self.exit_code() != 0 or not proc.members(self.root))

    def write_script(self, content: bytes) -> None:
        draft = self._script.with_suffix(".new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as file:
            file.write(content)
        os.replace(draft, self._script)

    def start(self, details: Details) -> None:
        """Start the script in a separate process and session, unless it runs already."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return
        try:
            self._exit.unlink(missing_ok=True)
            with open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as log:
                subprocess.run(  # noqa: S603
                    ["/bin/sh", "-c", _RUN, self.name, str(self._script), str(self._exit)],
                    stdin=lock,
                    stdout=log,
                    stderr=log,
                    env=self.environment(details),
                    cwd=self.root,
                    start_new_session=True,
                    check=True,
                )
        finally:
            os.close(lock)

    def script_runs(self) -> bool:
        return proc.is_locked(self._lock)

    def exit_code(self) -> int | None:
        """Return the script's exit code; None if it has not ended or could not record it."""
        try:
            return int(self._exit.read_text())
        except FileNotFoundError:
            return None

    def output(self) -> Output:
        return Output(self._log)

    def last_output(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - _MOST_TAIL))
                lines = file.read().decode(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        said = [line.strip() for line in lines if line.strip()][-_LAST_LINES:]
        return f"Last output: {' / '.join(said)}" if said else "It printed nothing."

    def environment(self, details: Details) -> dict[str, str]:
        """Return the environment of the script, without the Job's own: that may contain credentials."""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return {
            **kept,
            # This Python first: a machine may have no other that the agent can use, or a slow wrapper (pyenv) of one.
            "PATH": f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self.root / "root"),
            "TMPDIR": str(self.root / "tmp"),
            "LANG": "C.UTF-8",
            "HOSTNAME": details.hostname,
            proc.ROOT_VARIABLE: str(self.root),
            ADDRESS_VARIABLE: details.address,
        }


class Hosts:
    """All hosts of one management plane, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = Path(os.path.realpath(directory))  # as it will stand in the environment of processes

    def host(self, name: str) -> ProcessHost:
        return ProcessHost(self._directory / name)

    def all(self) -> list[ProcessHost]:
        if not self._directory.is_dir():
            return []
        return [ProcessHost(path) for path in sorted(self._directory.iterdir()) if not path.name.startswith(".")]

    def claim(self, wanted: Details, network: ipaddress.IPv4Network) -> Details:
        """Create the host's directory, or find it. Raises NameTaken."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked():
            host = self.host(wanted.name)
            found = host.details()
            if found is not None:
                if found.tags.get(TAG_UID) != wanted.tags[TAG_UID]:
                    raise NameTaken(f"host {wanted.name} already exists and belongs to {_whose(found)}")
                return found
            details = msgspec.structs.replace(wanted, address=self._address(wanted, network))
            draft = self._draft(wanted.name)
            _remove_tree(draft)
            for folder in ("root", "root/root", "root/tmp"):
                (draft / folder).mkdir(parents=True, mode=0o700)
            (draft / _DETAILS).write_bytes(msgspec.json.encode(details))
            draft.rename(host.directory)
            return details

    def delete(self, host: ProcessHost) -> None:
        """Delete a host's directory, complete or partial; do nothing if there is none."""
        if not self._directory.is_dir():
            return
        with self._locked():
            _remove_tree(self._draft(host.name))
            if not host.directory.is_dir():
                return
            for entry in host.directory.iterdir():
                if entry.name != _DETAILS:
                    _remove_tree(entry)
            (host.directory / _DETAILS).unlink(missing_ok=True)
            host.directory.rmdir()

    def _draft(self, name: str) -> Path:
        return self._directory / f"{_NEW}{name}"

    def _address(self, wanted: Details, network: ipaddress.IPv4Network) -> str:
        """Return the requested address; otherwise one derived from the name, or the next free one."""
        taken = {details.address for host in self.all() if (details := host.details()) is not None}
        if wanted.address:
            if wanted.address in taken:
                raise NameTaken(f"the address {wanted.address} belongs to another host")
            return wanted.address
        # Hosts of two management planes on one machine often have the same names.
        digest = hashlib.sha256(f"{wanted.tags[TAG_OWNER]}/{wanted.name}".encode()).digest()
        usable = network.num_addresses - 2
        first = int.from_bytes(digest[:8], "big")
        for number in range(usable):
            address = str(network[1 + (first + number) % usable])
            if address not in taken:
                return address
        raise NameTaken(f"no free address left in {network}")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _whose(details: Details) -> str:
    return details.tags.get(TAG_MACHINE) or f"the cluster {details.tags.get(TAG_CLUSTER)}"


def _remove_tree(path: Path) -> None:
    """Delete a directory tree, also read-only parts; symbolic links are removed, never followed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        for folder, folders, _ in os.walk(path):
            for name in folders:
                inner = os.path.join(folder, name)
                if not os.path.islink(inner):
                    os.chmod(inner, 0o700)
        shutil.rmtree(path)


# ---- used by the driver ----------------------------------------------------------------------------------------------


async def do(act: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run a blocking call in a thread; raise its OSError as DriverError."""
    try:
        return await asyncio.to_thread(act, *arguments, **named)
    except NameTaken as taken:
        raise DriverError(str(taken)) from None
    except OSError as error:
        raise DriverError(f"the operating system refuses: {error.strerror or error} ({error.filename})") from None


def check_address(text: str) -> None:
    """Check that an address is one that hosts can have. Raises BadOptions."""
    try:
        inside = ipaddress.ip_address(text) in ipaddress.ip_network("127.0.0.0/8")
    except ValueError:
        inside = False
    if not inside:
        raise BadOptions(f"address: {text!r} is not an address of 127.0.0.0/8, which process hosts use")
