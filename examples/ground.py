"""Choice of the demo's driver and distribution: the best that works on this machine, and why."""

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
    """The requested driver or distribution does not work here; the text says why, and what to do."""


class K3s(NamedTuple):
    program: Path
    version: str

    def __str__(self) -> str:
        return f"k3s {self.version}"


class Ground(NamedTuple):
    driver: str
    why: str
    listen: str  # address of the management plane for such machines
    k3s: K3s | None = None  # None: nano


def choose() -> Ground:
    """Return the driver and distribution for this machine. Raises Impossible."""
    distro, wanted = os.environ.get("DEMO_DISTRO", "nano"), os.environ.get("DEMO_DRIVER", "")
    if distro not in ("nano", "k3s"):
        raise Impossible(f"DEMO_DISTRO={distro}: must be nano or k3s")
    if wanted not in ("", "nspawn", "process"):
        raise Impossible(f"DEMO_DRIVER={wanted}: must be nspawn or process")
    if distro == "k3s":
        wanted = wanted or "nspawn"
    missing = "not chosen, DEMO_DRIVER=process" if wanted == "process" else _missing()
    if missing and wanted == "nspawn":
        raise Impossible(f"cannot create systemd-nspawn hosts on this machine: {missing}")
    if missing and distro == "k3s":
        raise Impossible("k3s needs hosts with their own systemd: unset DEMO_DRIVER, or use DEMO_DISTRO=nano")
    if not missing:
        why = "whose hosts have their own systemd (needs root)"
        return Ground("nspawn", why, f"{_address()}:{_port()}", _k3s() if distro == "k3s" else None)
    return Ground("process", f"whose hosts are local processes (nspawn: {missing})", f"127.0.0.1:{_port()}")


def _k3s() -> K3s:
    """Return the k3s binary: the one in $DEMO_K3S, one built for the tests, or the installed one."""
    if absent := _absent(*_K3S_PROGRAMS):
        raise Impossible(f"k3s on such hosts needs {', '.join(absent)}; on Debian, run interop/packages k3s")
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
        f"{f'{named} is not a working k3s binary' if named else 'no k3s binary found'}: set DEMO_K3S=FILE to a "
        "released one, or build it with interop/build k3s, which needs Go and a quarter of an hour"
    )


def _missing() -> str:
    """Return what prevents systemd-nspawn hosts on this machine; empty: nothing known."""
    if os.geteuid() != 0:
        return "needs root"
    if absent := _absent(*_PROGRAMS):
        return f"needs {', '.join(absent)}"
    if not _address():
        return "needs an address besides loopback"
    if not _may("unshare", "--mount", "true") or not _may_bridge():
        return "no permission to create mounts or networks"
    return ""


def _absent(*programs: str) -> list[str]:
    return [name for name in programs if shutil.which(name, path=_PATH) is None]


def _may(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _may_bridge() -> bool:
    name = f"rmd{os.getpid() % 10**8}"
    return _may("ip", "link", "add", name, "type", "bridge") and _may("ip", "link", "delete", name)


def _address() -> str:
    """Return the address of this machine's default route, without sending anything."""
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
