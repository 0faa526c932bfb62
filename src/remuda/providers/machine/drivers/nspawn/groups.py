"""The control groups of one host: where its processes are found, all of them and no others, and what limits them.

systemd-nspawn puts what it starts below its own group. Hosts started from one group would share the groups of equally
named services, so each gets a group of its own. It lies at the root of the hierarchy, not below ours: a service manager
that ends the group of the management plane must not end its hosts. On cgroup v1 the limits have hierarchies of their
own; there the group lies below ours, so that a host cannot use more than we may.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PERIOD_MICROSECONDS = 100_000
_REMOVAL_SECONDS = 5.0


class Limits(NamedTuple):
    memory: int = 0  # MiB
    cpus: int = 0


class Made(NamedTuple):
    keeper: list[Path]  # what the process enters that keeps the machine running
    machine: list[Path]  # what the machine enters, from there
    complaints: list[str]  # in words, what could not be limited


class Hierarchies(NamedTuple):
    """Folders in which a group is made."""

    tracking: list[Path]  # version 2, and version 1's name=systemd
    memory: Path | None  # version 1's own
    cpu: Path | None


def hierarchies(mounts: str | None = None, own: str | None = None) -> Hierarchies:
    """Of this machine; or of the given texts of /proc/self/mountinfo and /proc/self/cgroup."""
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
            single.update({name: point / paths.get(name, "/").lstrip("/") for name in names})
    return Hierarchies(tracking, single.get("memory"), single.get("cpu"))


def _own(line: str) -> Iterator[tuple[str, str]]:
    _, names, path = line.split(":", 2)
    for name in names.split(","):
        yield name, path


def make(name: str, limits: Limits, found: Hierarchies) -> Made:
    """On version 2 only a group without processes of its own can limit those below it: hence two below one."""
    for folder in found.tracking:
        for part in ("", "keeper", "machine"):
            (folder / name / part).mkdir(exist_ok=True)
    keeper = [folder / name / "keeper" for folder in found.tracking]
    complaints = []
    for what, value, settings in (
        ("memory", limits.memory, _memory(limits.memory)),
        ("processors", limits.cpus, _processors(limits.cpus)),
    ):
        if value and not _limit(name, settings, found, keeper):
            complaints.append(f"{what} cannot be limited on this machine: the control groups do not allow it")
    for folder in found.tracking:
        _pass_on(folder / name)
    return Made(keeper, [folder / name / "machine" for folder in found.tracking], complaints)


def _pass_on(group: Path) -> None:
    """What this group is accounted for, the machine may account for in its own groups; version 1 has no such thing."""
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


def _limit(
    name: str, settings: tuple[str, dict[str, str], dict[str, str]], found: Hierarchies, groups: list[Path]
) -> bool:
    controller, unified, legacy = settings
    folder = found.memory if controller == "memory" else found.cpu
    if folder is not None:
        group = folder / name
        try:
            group.mkdir(exist_ok=True)
            _write(group, legacy)
        except OSError:
            return False
        groups.append(group)
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
    """All processes of a host, from outside and within."""
    return {pid for folder in found.tracking for pid in _below(folder / name)}


def _below(group: Path) -> Iterator[int]:
    for file in [group / "cgroup.procs", *group.rglob("cgroup.procs")]:
        try:
            yield from (int(line) for line in file.read_text().split() if line != "0")
        except OSError:  # went while we looked
            continue


def remove(name: str, found: Hierarchies) -> None:
    """Blocks for a moment: the kernel takes a group only when its last process has been reaped."""
    folders = [*found.tracking, *(folder for folder in (found.memory, found.cpu) if folder is not None)]
    deadline = time.monotonic() + _REMOVAL_SECONDS
    for folder in folders:
        while not _removed(folder / name):
            if time.monotonic() > deadline:
                raise OSError(f"the control group {folder / name} cannot be removed: it is still in use")
            time.sleep(0.02)


def _removed(group: Path) -> bool:
    if not group.exists():
        return True
    try:
        for below in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            below.rmdir()
        group.rmdir()
    except FileNotFoundError:
        return False  # others removed some of it: look again
    except OSError:
        return False
    return True
