"""The tunnel's client on nodes of the control plane: its settings as files, the instruction that keeps it running, and
the token by which it authenticates.

The instruction is periodic: a manager that does not answer, a host that has no Python yet, or a program that a newer
manager has replaced need no new plan. No part of it restarts a node, and no plan fails for it.

A token is `<cluster id>.<machine>.<mac>`. The mac is over the cluster's id, the Machine's name and the Machine's uid,
with a key that only the manager has (in the cluster's state Secret). So the manager stores no tokens, a node always has
the same one, no node can derive the token of another node or cluster from its own, and a token dies with its Machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from functools import cache
from importlib.resources import files as resources
from typing import NamedTuple

from remuda.providers.controlplane.planner.observation import ClusterFacts, ObservedHost
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.config import SERVER_AUTHORITY
from remuda.providers.controlplane.render.instructions import user_environment
from remuda.providers.controlplane.render.plan import File, Instruction, indented
from remuda.providers.shared import distros

TUNNEL = "tunnel"
_SECONDS = 60
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
_LONGEST_TOKEN = 512  # characters of a token; longer ones are invalid


def files(cluster: ClusterFacts, host: ObservedHost) -> list[File]:
    """Names of files are relative: the same on every kind of host."""
    if not _is_wanted(cluster, host):
        return []
    assert cluster.tunnel is not None
    place = layout.of(cluster)
    own = token(cluster.tokens.tunnel, cluster.tunnel.cluster, host.name, host.uid)
    here = f"tcp/127.0.0.1:{cluster.distro.api_port}"
    settings = {
        "allow": [here],
        "authorities": ["ca.pem"],
        "status_file": "status.json",
        "token_file": "token",
        "urls": [cluster.tunnel.url],
        "wait_for": f"https://127.0.0.1:{cluster.distro.api_port}/version",  # also of one that serves and is not well
        "wait_for_authorities": ["api-ca.pem"],
    }
    contents = {
        place.tunnel_file("api-ca.pem"): cluster.authorities[SERVER_AUTHORITY],
        place.tunnel_file("ca.pem"): cluster.tunnel.authority,
        place.tunnel_file("token"): f"{own}\n".encode(),
        place.tunnel_file("config.json"): indented(settings),
    }
    return [File(path=path, content=content, dynamic=True, minor=True) for path, content in contents.items()]


def keep(cluster: ClusterFacts, host: ObservedHost) -> list[Instruction]:
    """Return the instruction that keeps the tunnel. It must be the first periodic instruction: those behind one that
    fails are not run."""
    if not _is_wanted(cluster, host):
        return []
    said = user_environment(cluster)
    proxies = [f"{name}={said[name]}" for name in _PROXIES if name in said]
    return [_instruction(cluster, "keep", proxies, _SECONDS)]


def remove(cluster: ClusterFacts, gone: Sequence[File]) -> list[Instruction]:
    """Return the instruction that removes the tunnel if its settings were deleted from the plan."""
    settings = layout.of(cluster).tunnel_file("config.json")
    return [_instruction(cluster, "remove")] if any(file.path == settings for file in gone) else []


def retire(cluster: ClusterFacts, host: ObservedHost) -> list[Instruction]:
    return [_instruction(cluster, "remove")] if _is_wanted(cluster, host) else []


def _is_wanted(cluster: ClusterFacts, host: ObservedHost) -> bool:
    return cluster.tunnel is not None and bool(cluster.tokens.tunnel) and host.roles.control_plane


def _instruction(cluster: ClusterFacts, word: str, more: Sequence[str] = (), period_seconds: int = 0) -> Instruction:
    place = layout.of(cluster)
    return Instruction(
        name=TUNNEL,
        args=["-c", f"{_script()}\n{word}\n"],
        env=[*more, f"REMUDA_AGENT_DIR={place.agent}", f"REMUDA_STATE_DIR={place.state}"],
        period_seconds=period_seconds,
    )


@cache
def _script() -> str:
    return resources(distros).joinpath("tunnel.sh").read_text("utf-8")


# ---- tokens -------------------------------------------------------------------------------------------------------


class PresentedToken(NamedTuple):
    """Presented token: its claims, and its proof."""

    cluster: str
    machine: str
    mac: str


def token(key: bytes, cluster: str, machine: str, uid: str) -> str:
    return f"{cluster}.{machine}.{_mac(key, cluster, machine, uid)}"


def parse(text: str) -> PresentedToken | None:
    """None: it is not of this form. Names of Machines may have dots; ids and macs have none."""
    if len(text) > _LONGEST_TOKEN or not text.isascii():
        return None
    cluster, _, rest = text.partition(".")
    machine, _, mac = rest.rpartition(".")
    return PresentedToken(cluster, machine, mac) if cluster and machine and mac else None


def proves(shown: PresentedToken, key: bytes, uid: str) -> bool:
    """Return whether the token belongs to the Machine with this uid, in constant time; without a key always False."""
    expected = _mac(key, shown.cluster, shown.machine, uid)
    # Without a key, anyone could compute the MAC. The comparison still runs first, so that its duration reveals
    # nothing.
    return hmac.compare_digest(expected, shown.mac) and bool(key)


def _mac(key: bytes, cluster: str, machine: str, uid: str) -> str:
    digest = hmac.digest(key, f"{cluster}/{machine}/{uid}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
