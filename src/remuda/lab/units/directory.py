"""Paths and state of units on a host that is a folder.

etc/systemd/system/                         unit files, and in multi-user.target.wants those that start by themselves
run/remuda-units/NAME.wanted                from its start until somebody stops it
                 NAME.lock                  locked by its keeper as long as that lives
                 NAME.json                  what its keeper says of it
                 environment.json, boot     what all units are started with, and since which start of the machine
var/log/NAME.log                            what it says
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from typing import NamedTuple

from remuda.agent import disk
from remuda.agent.layout import search_path
from remuda.lab.units import processes, unitfile
from remuda.lab.units.unitfile import BadUnit, Unit

ANEW = signal.SIGUSR1  # to a keeper: start the program again

_FOLDERS = ("etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
_WANTS = "etc/systemd/system/multi-user.target.wants"
_SUFFIX = ".service"
_LOOK_SECONDS = 0.5
# Variables of the agent's environment that units inherit.
_KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "HOSTNAME", "TZ", "REMUDA_HOST_ADDRESS")


class NoSuchUnit(BadUnit):
    pass


class State(NamedTuple):
    """State of a unit, as its keeper writes it."""

    state: str = "inactive"  # activating, active, deactivating, inactive, failed
    pid: int = 0  # pid of its program
    started: str = "-"
    keeper: int = 0
    keeper_started: str = "-"
    runs: int = 0  # number of starts
    restarts: int = 0  # of these, restarts after the program had ended by itself
    result: str = ""  # error
    notify: str = ""  # socket on which its program reports that it is ready

    @property
    def program_lives(self) -> bool:
        return processes.lives(self.pid, self.started)


class UnitDirectory:
    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self._run = os.path.join(self.root, "run", "remuda-units")

    # -- units -------------------------------------------------------------------------------------------------------

    def unit(self, name: str) -> Unit:
        """Return the unit as its file is now. Raises BadUnit."""
        path = self._file(name)
        if path is None:
            raise NoSuchUnit(f"Unit {name} not found.")
        parts = [path]
        extra = os.path.join(self.root, _FOLDERS[0], f"{name}.d")
        if os.path.isdir(extra):
            parts += [os.path.join(extra, each) for each in sorted(os.listdir(extra)) if each.endswith(".conf")]
        return unitfile.parse(name, "\n".join((disk.read(part) or b"").decode("utf-8", "replace") for part in parts))

    def has(self, name: str) -> bool:
        return self._file(name) is not None

    def _file(self, name: str) -> str | None:
        paths = [os.path.join(self.root, folder, name) for folder in _FOLDERS]
        return next((path for path in paths if os.path.isfile(path)), None)

    def enable(self, name: str) -> None:
        path = self._file(name)
        if path is None:
            raise NoSuchUnit(f"Unit {name} not found.")
        folder = os.path.join(self.root, _WANTS)
        os.makedirs(folder, exist_ok=True)
        self.disable(name)
        os.symlink(os.path.relpath(path, folder), os.path.join(folder, name))

    def disable(self, name: str) -> None:
        disk.remove(os.path.join(self.root, _WANTS, name))

    def enabled(self) -> list[str]:
        folder = os.path.join(self.root, _WANTS)
        return sorted(name for name in os.listdir(folder) if self.has(name)) if os.path.isdir(folder) else []

    # -- wanted units ------------------------------------------------------------------------------------------------

    def want(self, name: str) -> None:
        os.makedirs(self._run, exist_ok=True)
        disk.write(self._of(name, "wanted"), b"")

    def want_no_more(self, name: str) -> None:
        disk.remove(self._of(name, "wanted"))

    def wants(self, name: str) -> bool:
        return os.path.exists(self._of(name, "wanted"))

    def wanted(self) -> list[str]:
        end = ".wanted"
        found = os.listdir(self._run) if os.path.isdir(self._run) else []
        return sorted(name[: -len(end)] for name in found if name.endswith(end))

    def begin_anew(self, boot: str) -> None:
        """Start over after a boot of the machine: enabled units are wanted, and no others."""
        os.makedirs(self._run, exist_ok=True)
        path = os.path.join(self._run, "boot")
        if disk.read(path) == boot.encode():
            return
        for name in self.wanted():
            self.want_no_more(name)
        for name in self.enabled():
            self.want(name)
        # Write the boot id last: if the agent is killed before, the next one does all of this again.
        disk.write(path, boot.encode())

    # -- state -------------------------------------------------------------------------------------------------------

    def said(self, name: str) -> State:
        """Return the state that the unit's keeper, or the previous one, has written."""
        try:
            return State(**json.loads(disk.read(self._of(name, "json")) or b"{}"))
        except (ValueError, TypeError):
            return State()

    def state(self, name: str) -> State:
        """Return the state of a unit. Without a keeper, it depends on whether the program runs."""
        found = self.said(name)
        if self.has_keeper(name):
            said = processes.lives(found.keeper, found.keeper_started)
            return found if said else found._replace(state="activating", keeper=0)
        if found.program_lives:
            return found._replace(state="active", keeper=0)
        return found._replace(state="failed" if found.state == "failed" else "inactive", pid=0, keeper=0)

    def write(self, name: str, state: State) -> None:
        disk.write(self._of(name, "json"), json.dumps(state._asdict()).encode(), durable=False)

    def forget(self, name: str) -> None:
        """Delete the recorded state of a unit, and with it its failure, unless it has a keeper."""
        if not self.has_keeper(name):
            disk.remove(self._of(name, "json"))

    def forget_all(self) -> None:
        if os.path.isdir(self._run) and not self.wanted():
            disk.remove_tree(self._run)

    def has_keeper(self, name: str) -> bool:
        lock = self._lock(name, fcntl.LOCK_SH)  # shared, so that several processes can check at once
        if lock is not None:
            os.close(lock)
        return lock is None

    def claim(self, name: str) -> int | None:
        """Take the lock of a unit's keeper, held while its descriptor is open; None when the unit has a keeper. It
        retries for a moment, because `has_keeper` takes the lock for a moment too."""
        until = time.monotonic() + _LOOK_SECONDS
        lock = self._lock(name, fcntl.LOCK_EX)
        while lock is None and time.monotonic() < until:
            time.sleep(0.02)
            lock = self._lock(name, fcntl.LOCK_EX)
        return lock

    def _lock(self, name: str, how: int) -> int | None:
        os.makedirs(self._run, exist_ok=True)
        lock = os.open(self._of(name, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return None
        return lock

    def log(self, name: str) -> str:
        folder = os.path.join(self.root, "var", "log")
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, f"{name[: -len(_SUFFIX)]}.log")

    def _of(self, name: str, what: str) -> str:
        return os.path.join(self._run, f"{name}.{what}")

    # -- environment -------------------------------------------------------------------------------------------------

    def keep_environment(self, address: str) -> None:
        os.makedirs(self._run, exist_ok=True)
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        kept["PATH"] = search_path(self.root, os.environ.get("PATH", os.defpath))
        if address:
            kept["REMUDA_HOST_ADDRESS"] = address
        disk.write(os.path.join(self._run, "environment.json"), json.dumps(kept).encode())

    def environment(self) -> dict[str, str]:
        kept = json.loads(disk.read(os.path.join(self._run, "environment.json")) or b"{}")
        return {**kept, processes.ROOT_VARIABLE: self.root}

    def below(self, path: str) -> str:
        """Return a path of the host as a path of the machine. Paths below the folder stay unchanged."""
        inside = path == self.root or path.startswith(f"{self.root}/")
        return path if inside else os.path.join(self.root, path.lstrip("/"))

    def program(self, path: str) -> str:
        """Return the program of the host if it has one, else that of the machine."""
        own = self.below(path)
        return own if os.path.exists(own) else path


def full(name: str) -> str:
    """Return the full name of a unit, whose suffix may be missing. Raises BadUnit."""
    name = name if name.endswith(_SUFFIX) else f"{name}{_SUFFIX}"
    if "/" in name or name.startswith(".") or name == _SUFFIX:
        raise BadUnit(f"{name!r} is not a unit name")
    return name
