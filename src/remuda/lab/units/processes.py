"""Processes of a host that is a folder, identified by pid and start time, or by variables in their environment."""

from __future__ import annotations

import os
import signal

from remuda.agent.supervise import started

UNIT_VARIABLE = "REMUDA_HOST_UNIT"
ROOT_VARIABLE = "REMUDA_HOST_ROOT"


def lives(pid: int, since: str) -> bool:
    return pid > 0 and started(pid) == since


def opened(pid: int, since: str) -> int | None:
    """Return a descriptor that becomes readable when the process ends; None if it has ended."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    # Open first and compare then: the descriptor keeps referring to this process, also when its pid is reused.
    if lives(pid, since):
        return handle
    os.close(handle)
    return None


def send(pid: int, since: str, number: int) -> bool:
    """Send a signal to a process, but not to another one that has the same pid by now."""
    handle = opened(pid, since)
    if handle is None:
        return False
    try:
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def of_unit(root: str, unit: str) -> list[tuple[int, str]]:
    """Return the processes that a unit has started, recognized by their environment."""
    marks = {f"{ROOT_VARIABLE}={root}".encode(), f"{UNIT_VARIABLE}={unit}".encode()}
    mine, found = os.geteuid(), []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != mine:
                continue
            since = started(int(name))
            with open(f"/proc/{name}/environ", "rb") as file:
                if since != "-" and marks <= set(file.read().split(b"\0")):
                    found.append((int(name), since))
        except OSError:
            continue  # ended meanwhile, or not readable
    return found
