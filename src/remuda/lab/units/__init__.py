"""Replacement of systemd for hosts that are folders: runs units, as far as plans use them.

Each unit that runs has a keeper, a process of its own: it starts the unit's program, starts it again when it ends, and
ends it when told to. Neither is a child of the agent, so the agent may end, be killed and be replaced meanwhile. A
keeper that is killed is replaced by the agent, and the new one goes on with the program that runs.

    unitfile.py            a unit's file, as far as it is understood
    directory.py           where things are on such a host, and what is known of its units
    processes.py           whether a process runs, and which belong to a unit
    keeper.py              keeps one unit running
    systemctl_command.py   the command that scripts call
    unit_watch.py          the agent's part: units that are wanted have a keeper

The functions below are what the agent calls (`remuda.agent.folder_host.Units`). They import late: the agent has little
memory.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence


def watch(root: str, address: str, stop: threading.Event) -> None:
    from remuda.lab.units import unit_watch

    unit_watch.begin(root, address, stop)


def forget(root: str) -> None:
    """Delete the state of all units when the agent is removed, unless units are still wanted: those keep running."""
    from remuda.lab.units.directory import UnitDirectory

    UnitDirectory(root).forget_all()


def systemctl(root: str, words: Sequence[str]) -> int:
    from remuda.lab.units import systemctl_command

    return systemctl_command.main(root, list(words))


def keep(root: str, unit: str) -> int:
    from remuda.lab.units import keeper
    from remuda.lab.units.directory import UnitDirectory

    return keeper.keep(UnitDirectory(root), unit)
