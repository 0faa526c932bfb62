"""The folder of one host: what is known of it, its layer, its keys, and the process that is its machine.

    host.json    what it is and for whom; written first, removed last
    key          what opens it; upper, work, root: its file system
    leader       id and start time of the process that keeps the machine running, written by itself
    console.log  what the machine said while it started and stopped

The overlay is mounted in a mount namespace of the machine's own, so it is gone with the machine, however that ends.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from remuda.providers.shared.drivers.nspawn import groups
from remuda.providers.shared.drivers.nspawn.commands import ENVIRONMENT, attempt
from remuda.providers.shared.drivers.spi import DriverError

_ORDERLY_SECONDS = 10.0
_KILLED_SECONDS = 10.0
_CONSOLE_LINES = 12
_UNFINISHED = ".host.json.part"  # as `keep` calls it
_REBOOT = (
    133  # what systemd-nspawn ends with when its service manager, or whoever is in its place, is to start it again
)

# Writes down who it is, enters the keeper's groups, and becomes the keeper in a mount namespace of its own. Arguments:
# how many groups, the groups, and what the keeper takes. The limits of a Job are not those of its host.
_LAUNCH = """\
set -e
count=$1; shift
while [ "$count" -gt 0 ]; do echo $$ >"$1/cgroup.procs"; shift; count=$((count - 1)); done
ulimit -v unlimited
renice -n 0 -p $$ >/dev/null || true
echo "$$ $(cut -d ' ' -f 22 /proc/$$/stat)" >leader.part
mv leader.part leader
keeper=$1; shift
exec unshare --mount --propagation private sh -e -c "$keeper" sh "$@"
"""

# Mounts the file system and starts the machine; again when it ends in order to be rebooted. Arguments: the options of
# the overlay, how many groups, the groups of the machine, its command line.
_KEEP = f"""\
mount -t overlay overlay -o "$1" root; shift
stopping=
machine=
trap 'stopping=yes; kill -TERM "$machine" 2>/dev/null || true' TERM
while :; do
  (
    count=$1; shift
    while [ "$count" -gt 0 ]; do echo 0 >"$1/cgroup.procs"; shift; count=$((count - 1)); done
    trap - TERM
    exec "$@"
  ) &
  machine=$!
  code=0
  wait "$machine" || code=$?
  while kill -0 "$machine" 2>/dev/null; do code=0; wait "$machine" || code=$?; done
  if [ -n "$stopping" ] || [ "$code" != {_REBOOT} ]; then exit "$code"; fi
done
"""


class HostRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """host.json"""

    name: str
    hostname: str
    tags: Mapping[str, str]
    bridge: str
    ssh_user: str
    image: str = ""  # the folder below the layer; empty until it is known
    address: str = ""
    host_key: str = ""  # as we made it; what is in the layer may be changed by the host


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.upper = path / "upper"
        # Of this one folder on this one machine: short enough to be part of an interface's name.
        self.machine = "rm-" + hashlib.sha256(os.fsencode(path)).hexdigest()[:9]

    # -- known facts

    def read(self) -> HostRecord | None:
        try:
            return msgspec.json.decode((self.path / "host.json").read_bytes(), type=HostRecord)
        except FileNotFoundError:
            return None
        except PermissionError:
            raise DriverError(f"{self.path} is readable by root only") from None
        except msgspec.MsgspecError as error:
            raise DriverError(f"{self.path / 'host.json'} is damaged: {error}") from None

    def write(self, about: HostRecord) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        keep(self.path / "host.json", msgspec.json.encode(about))

    def key(self) -> str:
        """Return the SSH private key for the host; empty as long as there is none."""
        try:
            return (self.path / "key").read_text()
        except FileNotFoundError:
            return ""

    def keep_key(self, key: str) -> None:
        keep(self.path / "key", key.encode())

    def blank(self) -> None:
        """Replace the layer with an empty one."""
        for name in ("upper", "work", "root"):
            shutil.rmtree(self.path / name, ignore_errors=True)
            (self.path / name).mkdir(mode=0o755)

    def delete(self) -> None:
        """Delete the folder, host.json last: as long as it exists, a repeated removal knows whose host this is."""
        if not self.path.is_dir():
            return
        for entry in sorted(self.path.iterdir(), key=lambda entry: entry.name == "host.json"):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        self.path.rmdir()

    def delete_unowned(self) -> None:
        """Delete the folder if it holds nothing but a host.json that was never finished: a Job was killed while it made
        the folder, or between the last two steps of `delete`."""
        try:
            if {entry.name for entry in self.path.iterdir()} <= {_UNFINISHED}:
                (self.path / _UNFINISHED).unlink(missing_ok=True)
                self.path.rmdir()
        except FileNotFoundError:
            pass

    def last_output(self) -> str:
        """Return the end of the console output in one line."""
        try:
            text = (self.path / "console.log").read_text(errors="replace")
        except FileNotFoundError:
            return "its console is empty"
        lines = [line for line in (_plain(line) for line in text.splitlines()) if line]
        return " | ".join(lines[-_CONSOLE_LINES:]) or "its console is empty"

    # The machine.

    @property
    def started(self) -> bool:
        """Return whether the host has ever been started; it need not run now."""
        return (self.path / "leader").exists()

    @property
    def leader(self) -> int:
        """The machine's process; 0 when it does not run. A process that has the id of one that ended is not it."""
        try:
            pid, start = (self.path / "leader").read_text().split()
            known = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        except (OSError, ValueError):
            return 0
        return int(pid) if known[19] == start and known[0] != "Z" else 0

    async def start(self, lower: Path, limits: groups.ResourceLimits, arguments: Sequence[str]) -> list[str]:
        """Starts the machine, which outlives us. Returns what could not be limited. Raises DriverError if it ended at
        once."""
        await self.stop()  # processes of a machine whose keeper was killed may still run
        made = await asyncio.to_thread(groups.make, self.machine, limits, groups.hierarchies())
        command = (
            *("systemd-nspawn", "--quiet", "--directory=root", f"--machine={self.machine}", "--register=no"),
            *("--keep-unit", "--settings=no", "--link-journal=no", "--resolv-conf=off", "--timezone=off"),
            *("--capability=all", "--console=read-only", *arguments, "--boot", "--", "--show-status=yes"),
        )
        with (self.path / "console.log").open("ab") as console:
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", _LAUNCH, "sh", str(len(made.keeper)), *map(str, made.keeper)),
                *(_KEEP, f"lowerdir={lower},upperdir=upper,workdir=work"),
                *(str(len(made.machine)), *map(str, made.machine), *command),
                stdin=DEVNULL,
                stdout=console,
                stderr=console,
                cwd=self.path,
                env=ENVIRONMENT,
                start_new_session=True,
            )
        while not self.leader:
            if process.returncode is not None:
                raise DriverError(f"the host failed to start: {self.last_output()}")
            await asyncio.sleep(0.01)
        return made.complaints

    async def stop(self) -> None:
        """Stop the host. When this returns, all its processes have ended, and its interface and groups are removed."""
        found = groups.hierarchies()
        leader = self.leader
        if leader:
            _signal(leader, signal.SIGTERM)  # an orderly shutdown
            await self._ended(found, _ORDERLY_SECONDS)
        if not await self._ended(found, 0):
            for pid in await asyncio.to_thread(groups.processes, self.machine, found):
                _signal(pid, signal.SIGKILL)
            if not await self._ended(found, _KILLED_SECONDS):
                raise DriverError(f"processes of the host survive SIGKILL: {self._left(found)}")
        await self._forget_interface()
        try:
            await asyncio.to_thread(groups.remove, self.machine, found)
        except OSError as error:
            raise DriverError(str(error)) from None

    async def _ended(self, found: groups.Hierarchies, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            if not self.leader and not await asyncio.to_thread(groups.processes, self.machine, found):
                return True
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(0.05)

    def _left(self, found: groups.Hierarchies) -> str:
        return ", ".join(str(pid) for pid in sorted(groups.processes(self.machine, found)))

    async def _forget_interface(self) -> None:
        """Delete the host's interface. The kernel deletes it with the host's network namespace, but with a delay."""
        name = f"vb-{self.machine}"
        if await _has_interface(name):
            _, _, complaint = await attempt("ip", "link", "delete", name)
            if await _has_interface(name):
                raise DriverError(f"cannot remove the host's interface {name}: {complaint}")


async def _has_interface(name: str) -> bool:
    return (await attempt("ip", "link", "show", "dev", name))[0] == 0


def keep(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by the owner only."""
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        # Without it, a power failure after the rename could leave an empty file under the final name.
        os.fsync(file.fileno())
    part.replace(path)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _plain(line: str) -> str:
    """Return text without terminal escape sequences."""
    kept, coloured = [], False
    for sign in line:
        if sign == "\x1b":
            coloured = True
        elif coloured:
            coloured = not sign.isalpha()
        elif sign.isprintable():
            kept.append(sign)
    return "".join(kept).strip()
