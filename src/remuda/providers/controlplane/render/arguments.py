"""What users want in the config file of a host: which of it the distribution knows in this role, with values of the
right type. The rest is kept back, and told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from remuda.capi.types.shared import Selector
from remuda.kube.selectors import SelectorError
from remuda.providers.controlplane.distros import ArgumentType
from remuda.providers.controlplane.planner.observed import Cluster, Host

# What only we set: a value of the user's would take the host out of the cluster, or out of our sight.
OURS = {
    "token": "the manager makes tokens",
    "token-file": "the manager makes tokens",
    "agent-token": "the manager makes tokens",
    "agent-token-file": "the manager makes tokens",
    "server": "the manager chooses which server is joined",
    "cluster-init": "the manager chooses which server begins the cluster",
    "cluster-reset": "it would be repeated at every start",
    "cluster-reset-restore-path": "it would be repeated at every start",
    "node-name": "the manager names nodes after their Machines",
    "with-node-id": "the manager names nodes after their Machines",
    "private-registry": "set spec.registries instead",
    "https-listen-port": "servers are joined by their usual port",
    "advertise-port": "servers are joined by their usual port",
    "disable-agent": "every machine is a node",
    "disable-apiserver": "the roles of machines decide that",
    "disable-controller-manager": "the roles of machines decide that",
    "disable-scheduler": "the roles of machines decide that",
    "disable-etcd": "the roles of machines decide that",
    "datastore-endpoint": "machines of the role etcd hold the data",
    "datastore-cafile": "machines of the role etcd hold the data",
    "datastore-certfile": "machines of the role etcd hold the data",
    "datastore-keyfile": "machines of the role etcd hold the data",
}

GLOBAL = "machineGlobalConfig"


class Wanted(msgspec.Struct, frozen=True):
    values: dict[str, Any]
    kept_back: list[str]  # sentences


def wanted(cluster: Cluster, host: Host) -> Wanted:
    """Defaults, then the config of all machines, then of those that match; later ones win, `key+` adds to a list."""
    values: dict[str, Any] = {}
    kept_back: list[str] = []
    for source, config in _sources(cluster, host):
        for key in sorted(config, key=lambda key: (key.endswith("+"), key)):
            name = key.removesuffix("+")
            kind, refusal = _judged(cluster, host, name)
            if kind is not None and not refusal:
                value, refusal = coerced(config[key], kind)
                refusal = refusal or _data_directory(cluster, source, name, value)
                if not refusal:
                    values[name] = [*listed(values.get(name)), *listed(value)] if key.endswith("+") else value
            if refusal:
                kept_back.append(f"{source}: {key}: {refusal}")
    return Wanted({key: value for key, value in values.items() if value not in (None, "", [])}, kept_back)


def is_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and ".." not in value.split("/") and "\n" not in value


def listed(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    return [_text(item) for item in value] if isinstance(value, list | tuple) else [_text(value)]


def _sources(cluster: Cluster, host: Host) -> Iterable[tuple[str, Mapping[str, Any]]]:
    yield "defaults", cluster.distro.defaults
    yield GLOBAL, cluster.spec.machine_global_config
    for index, entry in enumerate(cluster.spec.machine_selector_config):
        if _matches(entry.machine_label_selector, host):
            yield f"machineSelectorConfig[{index}]", entry.config


def _matches(selector: Selector | None, host: Host) -> bool:
    try:
        return selector is None or selector.compile().matches(host.labels)
    except SelectorError:
        return False  # refused at admission


def _data_directory(cluster: Cluster, source: str, name: str, value: Any) -> str:
    """It is the same on all machines: `layout` says which."""
    if name != "data-dir" or value in (None, ""):
        return ""
    if source != GLOBAL or cluster.spec.data_directories.k8s_distro:
        return "is the same on all machines: set dataDirectories.k8sDistro"
    return "" if is_path(value) else "is no absolute path"


def _judged(cluster: Cluster, host: Host, name: str) -> tuple[ArgumentType | None, str]:
    """Its type on this host, if it may be there, and what is to be told of it. A key of servers is not missed on an
    agent: that is how one config serves all."""
    distro = cluster.distro
    if name in OURS:
        return None, OURS[name]
    known = distro.server_arguments if host.roles.server else distro.agent_arguments
    if name in known:
        return known[name], ""
    return None, "" if name in distro.server_arguments else f"{distro.name} has no such key"


def coerced(value: Any, kind: ArgumentType) -> tuple[Any, str]:
    """Numbers are as good as their text. Lists that are given as one text stay so: the distribution splits them."""
    if value is None:
        return None, ""
    if isinstance(value, Mapping) or (isinstance(value, list | tuple) and not _is_plain(value)):
        return None, "is neither a text, a number, true or false, nor a list of them"
    if kind == "list":
        return (value if isinstance(value, str) else listed(value)), ""
    if isinstance(value, list | tuple):
        return None, "is a list, and one value is wanted"
    if kind == "boolean":
        found = {"true": True, "false": False}.get(_text(value).lower())
        return found, "" if found is not None else "is neither true nor false"
    if kind == "number":
        return _number(value)
    return _text(value), ""


def _number(value: Any) -> tuple[Any, str]:
    try:
        return int(_text(value)), ""
    except ValueError:
        return None, "is no whole number"


def _is_plain(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str | int | float) for value in values)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # JSON does not tell 5 from 5.0
    return str(value)
