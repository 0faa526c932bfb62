"""Where the real upstream programs are. `interop/build` makes them, at the versions pinned in interop/*/go.mod, and
our own programs, whose version is a digest of their files: `clients`, `kubelet`, which answers for pods that are
processes of this machine, `remotedialer`, which is either end of a tunnel, `linearizability`, which judges histories,
`kstatus`, which is what Flux makes of objects, and `k3s-herd`, which pods run.

A test that needs one which is not there skips and says so; in CI (CI=true) that is a failure, because a comparison
that did not happen must not look like one that passed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path

from tests.lab.missing import missing

_ROOT = Path(__file__).resolve().parents[2]
_MODULES = {
    "kubectl": ("kubernetes", "k8s.io/kubernetes"),
    "kube-apiserver": ("kubernetes", "k8s.io/kubernetes"),
    "kube-controller-manager": ("kubernetes", "k8s.io/kubernetes"),
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "clusterctl": ("clusterctl", "sigs.k8s.io/cluster-api"),
    "capi-core-manager": ("clusterctl", "sigs.k8s.io/cluster-api"),
    "system-agent": ("system-agent", "github.com/rancher/system-agent"),
    "rancher-machine": ("rancher-machine", "github.com/rancher/machine"),
    "machine-plugin": ("machine-plugin", "github.com/machine-drivers/docker-machine-driver-vmware"),
    **dict.fromkeys(("k3s", "k3s-next"), ("k3s", "github.com/k3s-io/k3s")),
}


_OWN = {  # their folders
    **{name: name for name in ("clients", "kstatus", "kubelet", "linearizability", "remotedialer")},
    "k3s-herd": "k3s",
}


@cache
def _digest(program: str) -> str:
    folder = _ROOT / "interop" / _OWN[program]
    files = [*sorted(folder.glob("*.go")), folder / "go.mod", folder / "go.sum"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


@cache
def pinned_version(program: str) -> str:
    folder, module = _MODULES[program]
    text = (_ROOT / "interop" / folder / "go.mod").read_text()
    found = re.search(rf"^(?:require\s+|\s+){re.escape(module)}\s+(v\S+)", text, re.MULTILINE)
    if found is None:
        raise LookupError(f"interop/{folder}/go.mod pins no {module}")
    return found[1]


def peer_path(program: str) -> Path:
    cache_home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("REMUDA_PEERS") or Path(cache_home) / "remuda" / "peers")
    version = _digest(program) if program in _OWN else pinned_version(program)
    return folder / f"{program}-{version}"


def require_peer(*programs: str) -> list[Path]:
    """The paths of all of them, or the end of this test."""
    absent = [program for program in programs if not os.access(peer_path(program), os.X_OK)]
    if absent:
        missing(f"no {' and '.join(absent)} at the pinned version; build with: interop/build {' '.join(absent)}")
    return [peer_path(program) for program in programs]


def require_source(program: str) -> Path:
    """The folder with the source of the module a program is built from, at the pinned version."""
    folder, module = _MODULES[program]
    try:
        said = subprocess.run(
            ["go", "mod", "download", "-json", module], cwd=_ROOT / "interop" / folder, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        missing(f"no source of {module} {pinned_version(program)}: {error}")
    return Path(json.loads(said.stdout)["Dir"])
