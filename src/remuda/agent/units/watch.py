"""The agent's part: it puts `systemctl` where scripts find it, and sees to it that units that are wanted have a keeper.

It starts none itself: what is started is nobody's child, so it goes on when the agent does not.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading

from remuda.agent import disk, layout, log, program
from remuda.agent.units.directory import UnitDirectory

_LOOK_SECONDS = 2.0
_LEAST_SECONDS = 60.0


def begin(root: str, address: str, stop: threading.Event) -> None:
    """Nothing, where this program is not the one file that can be started again."""
    path = program.own_path()
    if not path:
        return
    place = UnitDirectory(root)
    place.keep_environment(address)
    command = [*program.command(path, "systemctl"), "--root", place.root, "--"]
    target = layout.systemctl(place.root)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    disk.write(target, f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'.encode(), 0o755)
    place.begin_anew((disk.read("/proc/sys/kernel/random/boot_id") or b"").decode().strip())
    threading.Thread(target=_watch, args=(place, command, stop), name="units", daemon=True).start()


def forget(root: str) -> None:
    """Delete the state of all units when the agent is removed, unless units are still wanted: those keep running."""
    UnitDirectory(root).forget_all()


def _watch(place: UnitDirectory, command: list[str], stop: threading.Event) -> None:
    while True:
        for name in place.wanted():
            try:
                if place.has(name) and not place.has_keeper(name):
                    log.info(f"unit {name} is wanted but has no keeper; starting one")
                    _start(command, name, stop)
            except (OSError, subprocess.SubprocessError) as error:
                log.warning(f"cannot start a keeper for unit {name}: {error}")
        if stop.wait(_LOOK_SECONDS):
            return


def _start(command: list[str], name: str, stop: threading.Event) -> None:
    if not stop.is_set():
        subprocess.run([*command, "resume", name], timeout=_LEAST_SECONDS, check=False)  # noqa: S603
