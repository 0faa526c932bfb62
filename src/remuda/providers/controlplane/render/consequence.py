"""Consequence of a new plan for its host: whether it restarts, whether Pods move away first, and what changed.

The installation of each plan carries two stamps: one checksum over all that requires a restart, and one over all that
requires a restart with a drain. The list of servers to join by, certificates and manifests are in neither. Changes are
described in the user's terms: names of things, never their contents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from remuda.providers.controlplane.planner.observation import ClusterFacts
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.instructions import MEMBERS, RETIRE, UNIT_STATUS, source, user_environment
from remuda.providers.controlplane.render.layout import AGENT_REGISTRIES
from remuda.providers.controlplane.render.plan import File, Plan, compact, read
from remuda.providers.controlplane.render.tunnel import TUNNEL

RESTART_STAMP = "RESTART_STAMP"
DRAIN_HASH = "DRAIN_HASH"

# Settings that a kubelet reads only when it registers its Node; existing Nodes are changed through the API (`nodes`).
_ONCE = ("node-label", "node-taint")
# Settings that no Pod can notice: the service is restarted for them, and Pods stay.
_UNNOTICED = ("tls-san", "etcd-disable-snapshots", "etcd-snapshot-", "etcd-s3")

# From least to most.
Change = Literal["none", "minor", "apply", "restart", "drain"]

_SAID_OTHERWISE = {RESTART_STAMP, DRAIN_HASH, "REMUDA_VERSION", "REMUDA_ARTEFACTS"}
_OF_US = ("REMUDA_", "INSTALL_")
_THE_TUNNEL = "the tunnel to the manager"
_PERIODIC = {MEMBERS: f"the report of {MEMBERS}", TUNNEL: _THE_TUNNEL, UNIT_STATUS: "the report of the unit's status"}
_WORDS: dict[Change, str] = {
    "none": "nothing changes",
    "minor": "applied at once, nothing restarts",
    "apply": "applied, nothing restarts",
    "restart": "the service restarts",
    "drain": "the service restarts, after a drain if drains are enabled",
}


def stamps(cluster: ClusterFacts, files: Sequence[File]) -> dict[str, str]:
    settings = layout.of(cluster).settings
    lasting = [file for file in files if not file.dynamic]

    def without(keys: tuple[str, ...]) -> list[File]:
        return [_without_keys(file, keys) if file.path == settings else file for file in lasting]

    return {
        RESTART_STAMP: _stamp(cluster, without(_ONCE)),
        DRAIN_HASH: _stamp(cluster, without(_ONCE + _UNNOTICED)),
    }


def _stamp(cluster: ClusterFacts, files: Sequence[File]) -> str:
    parts: list[Any] = [
        cluster.spec.provision_generation,
        source(cluster),
        sorted(user_environment(cluster).items()),
        [[file.path, file.permissions, hashlib.sha256(file.content).hexdigest()] for file in files],
        cluster.config_generation,
    ]
    return hashlib.sha256(compact(parts)).hexdigest()


def _without_keys(file: File, keys: tuple[str, ...]) -> File:
    values = json.loads(file.content)
    kept = {key: value for key, value in values.items() if not key.startswith(keys)}
    return File(path=file.path, content=compact(kept), permissions=file.permissions)


# ---- comparison ---------------------------------------------------------------------------------------------------


def compare(before: bytes, after: bytes) -> Change:
    """Compare two plans. `minor`: files that need no coordination. `apply`: no restart. `restart`: the service
    restarts. `drain`: and Pods are evicted before, if the user enabled that. A first plan starts the service; it has no
    Pods yet.
    """
    if before == after:
        return "none"
    if not before:
        return "restart"
    old, new = read(before), read(after)
    if _same_instructions(old, new) and all(file.minor for file in changed_files(old, new)):
        return "minor"
    was, now = old.environment(), new.environment()
    if was.get(RESTART_STAMP) != now.get(RESTART_STAMP):
        return "restart" if was.get(DRAIN_HASH) == now.get(DRAIN_HASH) else "drain"
    return "apply"


def changed_files(old: Plan, new: Plan) -> list[File]:
    """Return the files that differ between the two plans, in their newer version."""
    was, now = ({file.path: file for file in plan.files} for plan in (old, new))
    return [
        now[path] if path in now else was[path]
        for path in dict.fromkeys((*now, *was))
        if was.get(path) != now.get(path)
    ]


def _same_instructions(old: Plan, new: Plan) -> bool:
    return (old.instructions, old.periodic, old.probes) == (new.instructions, new.periodic, new.probes)


# ---- description --------------------------------------------------------------------------------------------------


def describe(change: Change) -> str:
    return _WORDS[change]


def why(before: bytes, after: bytes) -> str:
    """One line for an event."""
    return ", ".join(changes(before, after)) or "nothing changes"


def changes(before: bytes, after: bytes) -> list[str]:
    if not before:
        return ["first plan"]
    if compare(before, after) == "none":
        return []
    old, new = read(before), read(after)
    if any(one.name == RETIRE for one in new.instructions):
        return ["the host leaves the cluster"]
    found = [*_installation(old, new), *_environment(old, new)]
    for file in changed_files(old, new):
        found += _file(file, old, new)
    if old.probes != new.probes:
        found.append("probes")
    found += [_PERIODIC.get(name, name) for name in _periodic_that_differ(old, new)]
    unexplained = old.environment().get(RESTART_STAMP) != new.environment().get(RESTART_STAMP)
    if unexplained and not found:
        found.append("a restart was requested (provisionGeneration)")
    return list(dict.fromkeys(found)) or ["the tool that applies plans"]


def _installation(old: Plan, new: Plan) -> Iterable[str]:
    was, now = old.environment(), new.environment()
    if was.get("REMUDA_VERSION") != now.get("REMUDA_VERSION"):
        yield f"version {was.get('REMUDA_VERSION')} → {now.get('REMUDA_VERSION')}"
    elif was.get("REMUDA_ARTEFACTS") != now.get("REMUDA_ARTEFACTS") or _images(old) != _images(new):
        yield "the source of the installation"


def _images(plan: Plan) -> list[str]:
    return [one.image for one in plan.instructions]


def _environment(old: Plan, new: Plan) -> Iterable[str]:
    was, now = old.environment(), new.environment()
    for name in sorted({*was, *now} - _SAID_OTHERWISE):
        if was.get(name) != now.get(name) and not name.startswith(_OF_US):
            yield f"environment {name}"


def _periodic_that_differ(old: Plan, new: Plan) -> list[str]:
    was, now = ({one.name: one for one in plan.periodic} for plan in (old, new))
    return [name for name in dict.fromkeys((*now, *was)) if was.get(name) != now.get(name)]


def _file(file: File, old: Plan, new: Plan) -> list[str]:
    path = file.path
    if path.endswith("/config.yaml.d/50-rancher.yaml"):
        return [f"config key {key}" for key in _keys_that_differ(path, old, new)]
    for end, words in (
        ("/remuda-servers", "the servers to join by"),
        ("/remuda-ca.crt", "the cluster's CA"),
        ("/servers.d/50-manager.json", "the manager's CA certificates"),
        ("/host-tool.py", "the tool that applies plans"),
        *((f"/{TUNNEL}/{name}", _THE_TUNNEL) for name in ("api-ca.pem", "ca.pem", "config.json", "token")),
        ("/addons.yaml", "additionalManifest"),
        ("/managed-chart-config.yaml", "chartValues"),
        ("-etcd-snapshot-extra-metadata.yaml", "the spec stored in snapshots"),
    ):
        if path.endswith(end):
            return [words]
    if path == AGENT_REGISTRIES or path.endswith("/registries.yaml") or "/etc/tls/registries/" in path:
        return ["registries"]
    if "/server/tls/" in path:
        return ["the cluster's CA"]
    return [f"file {path} is removed" if file.deleted else f"file {path}"]


def _keys_that_differ(path: str, old: Plan, new: Plan) -> list[str]:
    was, now = (json.loads(found.content) if (found := plan.file(path)) else {} for plan in (old, new))
    return sorted(key for key in {*was, *now} if was.get(key) != now.get(key))
