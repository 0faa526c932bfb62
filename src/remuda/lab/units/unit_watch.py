"""Watch of units by the agent: installs `systemctl` for scripts, and replaces missing keepers of wanted units.

It starts keepers through `systemctl`, so that they are not its children and outlive the agent.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import threading

from remuda.agent import disk, layout, log, program
from remuda.lab.units.directory import UnitDirectory

_LOOK_SECONDS = 2.0
_LEAST_SECONDS = 60.0


def begin(root: str, address: str, stop: threading.Event) -> None:
    """Begin to watch units; do nothing if this program does not run from a single file."""
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
