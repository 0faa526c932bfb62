"""Paths of the agent on a host, derived from environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

UNIT = "remuda-agent.service"
TUNNEL_UNIT = "remuda-tunnel.service"
_UNITS = "/etc/systemd/system"
_PROGRAMS = "usr/local/bin"
DIRECTORY = "/etc/rancher/agent"
VAR = "/var/lib/rancher/agent"


class AgentLayout(NamedTuple):
    root: str  # of a host that is a folder; empty: this machine
    address: str
    etc: str
    var: str
    program: str

    @property
    def config_file(self) -> str:
        return os.path.join(self.etc, "config.yaml")

    @property
    def id_file(self) -> str:
        return os.path.join(self.etc, "cattle-id")

    @property
    def connection_file(self) -> str:
        return os.path.join(self.var, "rancher2_connection_info.json")

    @property
    def interlock(self) -> str:
        return os.path.join(self.var, "interlock")

    @property
    def uninstall_script(self) -> str:
        return f"{self.program}-uninstall.sh"

    @property
    def unit_file(self) -> str:
        return os.path.join(_UNITS, UNIT)

    @property
    def tunnel_unit_file(self) -> str:
        return f"{self.root}{_UNITS}/{TUNNEL_UNIT}"

    @property
    def environment_file(self) -> str:
        return os.path.join(_UNITS, "remuda-agent.env")

    @property
    def by_systemd(self) -> bool:
        return not self.root and os.path.isdir("/run/systemd/system")

    def arguments(self) -> list[str]:
        """Return the arguments of `run` and `supervise`."""
        found = ["--config", self.config_file]
        if self.root:
            found += ["--root", self.root]
        if self.address:
            found += ["--address", self.address]
        return found


def of(environment: Mapping[str, str]) -> AgentLayout:
    root = environment.get("REMUDA_HOST_ROOT") or ""
    root = os.path.abspath(root) if root else ""
    etc = environment.get("CATTLE_AGENT_CONFIG_DIR") or DIRECTORY
    # On systems that updates replace as a whole, only /etc is writable.
    transactional = not root and os.path.exists("/usr/sbin/transactional-update")
    var = environment.get("CATTLE_AGENT_VAR_DIR") or (f"{DIRECTORY}/var" if transactional else VAR)
    prefix = environment.get("CATTLE_AGENT_BIN_PREFIX") or ""
    if not prefix:
        prefix = "/usr/local" if root or _is_writable("/usr/local/bin") else "/opt/remuda-agent"
    return AgentLayout(
        root=root,
        address=environment.get("REMUDA_HOST_ADDRESS") or "",
        etc=_below(root, etc),
        var=_below(root, var),
        program=os.path.join(_below(root, prefix), "bin", "remuda-agent"),
    )


def systemctl(root: str) -> str:
    """Return the path of the `systemctl` replacement on a host that is a folder."""
    return os.path.join(root, _PROGRAMS, "systemctl")


def search_path(root: str, path: str) -> str:
    """Return the PATH for commands on a host that is a folder: its own programs first, then the machine's."""
    return f"{os.path.join(root, _PROGRAMS)}:{path}"


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/")) if root else os.path.abspath(path)


def _is_writable(path: str) -> bool:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)
