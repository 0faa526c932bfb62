"""Where the demo's machines are made and what they run: the best of what this machine can do, and why."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import NamedTuple

_PROGRAMS = ("systemd-nspawn", "cloud-init", "sshd", "ip", "mount", "unshare", "tar", "curl")
_K3S_PROGRAMS = ("conntrack", "socat", "/usr/lib/cni/bridge")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_VERSION = re.compile(r"v\d+\.\d+\.\d+\S*\+k3s\d+")


class Impossible(Exception):
    """What was asked for cannot be had here; the text says why, and what to do."""


class K3s(NamedTuple):
    program: Path
    version: str

    def __str__(self) -> str:
        return f"k3s {self.version}"


class Ground(NamedTuple):
    driver: str
    why: str
    listen: str  # where the management plane is to be found by such machines
    k3s: K3s | None = None  # None: nano


def choose() -> Ground:
    """Raises Impossible."""
    distro, wanted = os.environ.get("DEMO_DISTRO", "nano"), os.environ.get("DEMO_DRIVER", "")
    if distro not in ("nano", "k3s"):
        raise Impossible(f"DEMO_DISTRO={distro}: it is nano or k3s")
    if wanted not in ("", "nspawn", "process"):
        raise Impossible(f"DEMO_DRIVER={wanted}: it is nspawn or process")
    if distro == "k3s":
        wanted = wanted or "nspawn"
    missing = "DEMO_DRIVER says so" if wanted == "process" else _missing()
    if missing and wanted == "nspawn":
        raise Impossible(f"hosts in systemd-nspawn cannot be made here: {missing}")
    if missing and distro == "k3s":
        raise Impossible("k3s wants hosts with a systemd of their own: leave DEMO_DRIVER out, or take DEMO_DISTRO=nano")
    if not missing:
        why = "hosts with a systemd of their own, as root can have them"
        return Ground("nspawn", why, f"{_address()}:{_port()}", _k3s() if distro == "k3s" else None)
    return Ground("process", f"hosts are processes of yours (nspawn: {missing})", f"127.0.0.1:{_port()}")


def _k3s() -> K3s:
    """The program as it is released: the one that is named, that was built for the tests, or that is installed."""
    if absent := _absent(*_K3S_PROGRAMS):
        raise Impossible(f"k3s on such hosts needs {', '.join(absent)}; on Debian: interop/packages k3s")
    built = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "remuda" / "peers"
    places = [*sorted(built.glob("k3s-v*")), *map(Path, filter(None, [shutil.which("k3s")]))]
    if named := os.environ.get("DEMO_K3S"):
        places = [Path(named)]
    for program in places:
        if os.access(program, os.X_OK) and program.is_file():
            said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
            if found := _VERSION.search(said):
                return K3s(program.absolute(), found[0])
    raise Impossible(
        f"{f'{named} is' if named else 'there is'} no program k3s that can be run here: DEMO_K3S=FILE names the one "
        "of a release, or interop/build k3s makes it, which needs Go and a quarter of an hour"
    )


def _missing() -> str:
    """What keeps hosts in systemd-nspawn from being made here; empty: nothing is known to."""
    if os.geteuid() != 0:
        return "needs root"
    if absent := _absent(*_PROGRAMS):
        return f"needs {', '.join(absent)}"
    if not _address():
        return "needs an address besides loopback"
    if not _may("unshare", "--mount", "true") or not _may_bridge():
        return "may not make mounts or networks here"
    return ""


def _absent(*programs: str) -> list[str]:
    return [name for name in programs if shutil.which(name, path=_PATH) is None]


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
