"""The tunnel's client on nodes of the control plane: its settings as files, and an instruction that keeps it running.

The instruction is periodic: a manager that does not answer, a host that has no Python yet, or a program that a newer
manager has replaced need no new plan. Nothing here is part of what restarts a node, and no plan fails for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files as resources

from remuda.providers.controlplane import tunnel_tokens
from remuda.providers.controlplane.planner.observation import Cluster, Host
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.instructions import user_environment
from remuda.providers.controlplane.render.plan import File, Instruction, indented
from remuda.providers.controlplane.render.tokens import SERVER_AUTHORITY
from remuda.providers.shared import distros

TUNNEL = "tunnel"
_SECONDS = 60
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def files(cluster: Cluster, host: Host) -> list[File]:
    """Names of files are relative: the same on every kind of host."""
    if not _is_wanted(cluster, host):
        return []
    assert cluster.tunnel is not None
    place = layout.of(cluster)
    token = tunnel_tokens.token(cluster.tokens.tunnel, cluster.tunnel.cluster, host.name, host.uid)
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
        place.tunnel_file("token"): f"{token}\n".encode(),
        place.tunnel_file("config.json"): indented(settings),
    }
    return [File(path=path, content=content, dynamic=True, minor=True) for path, content in contents.items()]


def keep(cluster: Cluster, host: Host) -> list[Instruction]:
    """Return the instruction that keeps the tunnel. It must be the first periodic instruction: those behind one that
    fails are not run."""
    if not _is_wanted(cluster, host):
        return []
    said = user_environment(cluster)
    proxies = [f"{name}={said[name]}" for name in _PROXIES if name in said]
    return [_instruction(cluster, "keep", proxies, _SECONDS)]


def remove(cluster: Cluster, gone: Sequence[File]) -> list[Instruction]:
    """Return the instruction that removes the tunnel if its settings were deleted from the plan."""
    settings = layout.of(cluster).tunnel_file("config.json")
    return [_instruction(cluster, "remove")] if any(file.path == settings for file in gone) else []


def retire(cluster: Cluster, host: Host) -> list[Instruction]:
    return [_instruction(cluster, "remove")] if _is_wanted(cluster, host) else []


def _is_wanted(cluster: Cluster, host: Host) -> bool:
    return cluster.tunnel is not None and bool(cluster.tokens.tunnel) and host.roles.control_plane


def _instruction(cluster: Cluster, word: str, more: Sequence[str] = (), period_seconds: int = 0) -> Instruction:
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
