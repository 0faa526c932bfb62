"""Where the demo's machines are made: the best of what this machine can do, and why."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from typing import NamedTuple

_PROGRAMS = ("systemd-nspawn", "cloud-init", "sshd", "ip", "mount", "unshare", "tar", "curl")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Ground(NamedTuple):
    driver: str
    why: str
    listen: str  # where the management plane is to be found by such machines


def choose() -> Ground:
    wanted = os.environ.get("DEMO_DRIVER", "")
    missing = "DEMO_DRIVER says so" if wanted == "process" else _missing()
    if missing and wanted == "nspawn":
        raise SystemExit(f"DEMO_DRIVER=nspawn cannot be: {missing}")
    if not missing:
        return Ground("nspawn", "hosts with a systemd of their own, as root can have them", f"{_address()}:{_port()}")
    return Ground("process", f"hosts are processes of yours (nspawn: {missing})", f"127.0.0.1:{_port()}")


def _missing() -> str:
    """What keeps hosts in systemd-nspawn from being made here; empty: nothing is known to."""
    if os.geteuid() != 0:
        return "needs root"
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"needs {', '.join(absent)}"
    if not _address():
        return "needs an address besides loopback"
    if not _may("unshare", "--mount", "true") or not _may_bridge():
        return "may not make mounts or networks here"
    return ""


def _may(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _may_bridge() -> bool:
    name = f"rmd{os.getpid() % 10**8}"
    return _may("ip", "link", "add", name, "type", "bridge") and _may("ip", "link", "delete", name)


def _address() -> str:
    """Of this machine, by which others would reach it. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
