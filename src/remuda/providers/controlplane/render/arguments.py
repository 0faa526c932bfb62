"""Select the user's settings for the config file of a host: those that the distribution knows in this role, with values
of the right type. The rest is left out and reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from remuda.capi.types.shared import Selector
from remuda.kube.selectors import SelectorError
from remuda.providers.controlplane.planner.observation import ClusterFacts, ObservedHost
from remuda.providers.shared.distros import ArgumentType, Distro, Version
from remuda.providers.shared.distros.contract import listed, refusals, text

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


class RenderedArguments(msgspec.Struct, frozen=True):
    values: dict[str, Any]
    kept_back: list[str]  # sentences


def wanted(cluster: ClusterFacts, host: ObservedHost) -> RenderedArguments:
    """Merge the defaults, the config of all machines, and the matching selectors; later ones win, `key+` appends to a
    list.
    """
    values: dict[str, Any] = {}
    kept_back: list[str] = []
    known = cluster.distro.arguments(host.roles.server, cluster.version)
    for source, config in _sources(cluster, host):
        for key in sorted(config, key=lambda key: (key.endswith("+"), key)):
            name = key.removesuffix("+")
            kind, refusal = _judged(cluster, known, name)
            if kind is not None and not refusal:
                value, refusal = coerced(config[key], kind)
                refusal = refusal or _data_directory(cluster, source, name, value)
                if not refusal:
                    values[name] = [*listed(values.get(name)), *listed(value)] if key.endswith("+") else value
            if refusal:
                kept_back.append(f"{source}: {key}: {refusal}")
    values = {key: value for key, value in values.items() if value not in (None, "", [])}
    return RenderedArguments(values, kept_back + _take_away_what_is_refused(cluster, values))


def is_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/") and ".." not in value.split("/") and "\n" not in value


def _sources(cluster: ClusterFacts, host: ObservedHost) -> Iterable[tuple[str, Mapping[str, Any]]]:
    yield "defaults", cluster.distro.defaults
    yield GLOBAL, cluster.spec.machine_global_config
    for index, entry in enumerate(cluster.spec.machine_selector_config):
        if _matches(entry.machine_label_selector, host):
            yield f"machineSelectorConfig[{index}]", entry.config


def _matches(selector: Selector | None, host: ObservedHost) -> bool:
    try:
        return selector is None or selector.compile().matches(host.labels)
    except SelectorError:
        return False  # refused at admission


def _data_directory(cluster: ClusterFacts, source: str, name: str, value: Any) -> str:
    """Return why this data-dir is left out; empty if allowed. It must be the same on all machines: see `layout`."""
    if name != "data-dir" or value in (None, ""):
        return ""
    if source != GLOBAL or cluster.spec.data_directories.k8s_distro:
        return "must be the same on all machines: set dataDirectories.k8sDistro"
    return "" if is_path(value) else "is not an absolute path"


def _judged(cluster: ClusterFacts, known: Mapping[str, ArgumentType], name: str) -> tuple[ArgumentType | None, str]:
    """Return the key's type on this host, if the key is allowed there, and the message to report. A server's key that
    is left out on an agent is not reported: that way one config serves all hosts."""
    if name in OURS:
        return None, OURS[name]
    if name in known:
        return known[name], ""
    if name in cluster.distro.arguments(True, cluster.version):
        return None, ""
    return None, absence(cluster.distro, cluster.version, name)


def absence(distro: Distro, version: Version | None, name: str) -> str:
    """Return why a key that this version does not have is left out."""
    if version is not None and name in distro.server_arguments:
        return f"{distro.name} has it in other versions than {version.text}"
    return f"{distro.name} has no such key"


def _take_away_what_is_refused(cluster: ClusterFacts, values: dict[str, Any]) -> list[str]:
    """Drop settings with which the program would not start, or would kill a component. Admission rejects them, but an
    older release may have admitted them, or several selectors may combine to them.
    """
    found = refusals(cluster.distro.contract, cluster.version, values)
    for refusal in found:
        if refusal.items:
            values[refusal.key] = [item for item in listed(values[refusal.key]) if item not in refusal.items]
        else:
            values.pop(refusal.key, None)
    return [f"{refusal.key}: {refusal.words}" for refusal in found]


def coerced(value: Any, kind: ArgumentType) -> tuple[Any, str]:
    """Convert values: numbers and their text are equivalent. Lists that are given as one text stay so: the distribution
    splits them.
    """
    if value is None:
        return None, ""
    if isinstance(value, Mapping) or (isinstance(value, list | tuple) and not _is_plain(value)):
        return None, "must be a string, a number, true or false, or a list of these"
    if kind == "list":
        return (value if isinstance(value, str) else listed(value)), ""
    if isinstance(value, list | tuple):
        return None, "is a list, but must be a single value"
    if kind == "boolean":
        found = {"true": True, "false": False}.get(text(value).lower())
        return found, "" if found is not None else "is neither true nor false"
    if kind == "number":
        return _number(value)
    return text(value), ""


def _number(value: Any) -> tuple[Any, str]:
    try:
        return int(text(value)), ""
    except ValueError:
        return None, "is not an integer"


def _is_plain(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str | int | float) for value in values)
