"""The control groups of one host: where its processes are found, all of them and no others, and what limits them.

systemd-nspawn puts what it starts below its own group. Hosts started from one group would share the groups of equally
named services, so each gets a group of its own. It lies at the root of the hierarchy, not below ours: a service manager
that ends the group of the management plane must not end its hosts. On cgroup v1 each controller has a hierarchy of its
own; there the group lies below ours, so that a host cannot use more than we may. A host has a group in all of them: the
groups of containers that it runs are below, beside those of no other host, and go with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_PERIOD_MICROSECONDS = 100_000
_REMOVAL_SECONDS = 5.0
_LISTENING = "0A"


class ResourceLimits(NamedTuple):
    memory: int = 0  # MiB
    cpus: int = 0


class ControlGroups(NamedTuple):
    keeper: list[Path]  # groups of the process that keeps the machine running
    machine: list[Path]  # groups of the machine, below those
    complaints: list[str]  # messages about limits that could not be set


class Hierarchies(NamedTuple):
    """Folders in which a group is made."""

    tracking: list[Path]  # version 2, and version 1's name=systemd
    single: Mapping[str, Path]  # version 1's own, by controller; some share one


def hierarchies(mounts: str | None = None, own: str | None = None) -> Hierarchies:
    """Return the cgroup hierarchies of this machine, or of texts of /proc/self/mountinfo and /proc/self/cgroup."""
    mounts = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    own = Path("/proc/self/cgroup").read_text() if own is None else own
    paths = {controller: path for line in own.splitlines() for controller, path in _own(line)}
    tracking: list[Path] = []
    single: dict[str, Path] = {}
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = [*right.split(" ", 2), "", ""][:3]
        point = Path(left.split(" ")[4])
        names = options.split(",")
        if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in names):
            tracking.append(point)
        elif kind == "cgroup":
            single.update({name: point / paths[name].lstrip("/") for name in names if name in paths})
    return Hierarchies(tracking, single)


def _own(line: str) -> Iterator[tuple[str, str]]:
    _, names, path = line.split(":", 2)
    for name in names.split(","):
        yield name, path


def make(name: str, limits: ResourceLimits, found: Hierarchies) -> ControlGroups:
    """Create the groups. On version 2 only a group without processes can limit those below it: hence two below one."""
    for folder in found.tracking:
        for part in ("", "keeper", "machine"):
            (folder / name / part).mkdir(exist_ok=True)
    keeper = [folder / name / "keeper" for folder in found.tracking]
    keeper += [folder / name for folder in dict.fromkeys(found.single.values()) if _single(folder, name)]
    complaints = []
    for what, value, settings in (
        ("memory", limits.memory, _memory(limits.memory)),
        ("processors", limits.cpus, _processors(limits.cpus)),
    ):
        if value and not _limit(name, settings, found):
            complaints.append(f"cannot limit {what} on this machine: the cgroups do not allow it")
    for folder in found.tracking:
        _pass_on(folder / name)
    return ControlGroups(keeper, [folder / name / "machine" for folder in found.tracking], complaints)


def _single(folder: Path, name: str) -> bool:
    """Create a group of one controller and return whether it exists now; without limits, none is needed."""
    try:
        (folder / name).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):  # without both, no process can enter
            if (folder / file).exists():
                (folder / name / file).write_text((folder / file).read_text())
    except OSError:
        return False
    return True


def _pass_on(group: Path) -> None:
    """Delegate this group's controllers to the machine's own groups; cgroup version 1 has no such delegation."""
    try:
        controllers = (group / "cgroup.controllers").read_text().split()
    except OSError:
        return
    for controller in controllers:
        try:
            (group / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError:
            continue


def _memory(mebibytes: int) -> tuple[str, dict[str, str], dict[str, str]]:
    amount = str(mebibytes << 20)
    return "memory", {"memory.max": amount}, {"memory.limit_in_bytes": amount}


def _processors(count: int) -> tuple[str, dict[str, str], dict[str, str]]:
    quota, period = str(count * _PERIOD_MICROSECONDS), str(_PERIOD_MICROSECONDS)
    return "cpu", {"cpu.max": f"{quota} {period}"}, {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota}


def _limit(name: str, settings: tuple[str, dict[str, str], dict[str, str]], found: Hierarchies) -> bool:
    controller, unified, legacy = settings
    folder = found.single.get(controller)
    if folder is not None:
        try:
            _write(folder / name, legacy)
        except OSError:
            return False
        return True
    for parent in found.tracking:
        try:
            if controller not in (parent / "cgroup.controllers").read_text().split():
                continue
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")
            _write(parent / name, unified)
        except OSError:
            continue
        return True
    return False


def _write(group: Path, values: dict[str, str]) -> None:
    for file, value in values.items():
        (group / file).write_text(value)


def processes(name: str, found: Hierarchies) -> set[int]:
    """Return all processes of a host, inside and outside its namespaces."""
    return {pid for folder in found.tracking for pid in _below(folder / name)}


def listens(name: str, port: int) -> bool:
    """Return whether a process on the host listens on the port, seen from the host's network namespace: a firewall
    between the host and us may block connections."""
    here = os.readlink("/proc/self/ns/net")
    for pid in processes(name, hierarchies()):
        try:
            if os.readlink(f"/proc/{pid}/ns/net") != here:
                return any(_is_listening(Path(f"/proc/{pid}/net/{table}"), port) for table in ("tcp", "tcp6"))
        except OSError:  # it has just ended
            continue
    return False


def _is_listening(table: Path, port: int) -> bool:
    """By the kernel's list of sockets: a number, where it is, where it leads to, and its state."""
    sockets = [line.split() for line in table.read_text().splitlines()[1:]]
    return any(one[1].endswith(f":{port:04X}") and one[3] == _LISTENING for one in sockets)


def _below(group: Path) -> Iterator[int]:
    """Return the groups below. The host may change them meanwhile; `os.walk` skips removed ones."""
    for folder, _, files in os.walk(group):
        if "cgroup.procs" in files:
            try:
                yield from (int(line) for line in Path(folder, "cgroup.procs").read_text().split() if line != "0")
            except OSError:
                continue


def remove(name: str, found: Hierarchies) -> None:
    """Blocks for a moment: the kernel takes a group only when its last process has been reaped."""
    folders = [*found.tracking, *dict.fromkeys(found.single.values())]
    deadline = time.monotonic() + _REMOVAL_SECONDS
    for folder in folders:
        while not _removed(folder / name):
            if time.monotonic() > deadline:
                raise OSError(f"cannot remove cgroup {folder / name}: it is still in use")
            time.sleep(0.02)


def _removed(group: Path) -> bool:
    if not group.exists():
        return True
    try:
        for below in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            below.rmdir()
        group.rmdir()
    except FileNotFoundError:
        return False  # other processes removed some of it: check again
    except OSError:
        return False
    return True
