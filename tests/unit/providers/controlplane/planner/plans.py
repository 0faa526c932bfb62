"""Plans for tests of the planner: small, readable, and with every kind of change a real one can have."""

from __future__ import annotations

import json
from typing import Any

from remuda.capi.types import Endpoint
from remuda.providers.controlplane.planner.decide import decide as decide_with
from remuda.providers.controlplane.planner.decision import Decision
from remuda.providers.controlplane.planner.observation import ClusterFacts, Observation, ObservedHost, Tokens
from remuda.providers.controlplane.render import Change, Placement
from remuda.providers.shared import distros
from remuda.providers.shared.types.configuration import DrainOptions, UpgradeStrategy
from remuda.providers.shared.types.controlplane import Installer, RKEControlPlaneSpec

VERSION = "v1.36.3+k3s1"
_PROBES = {"etcd": ("etcd",), "control_plane": ("kube-apiserver",)}


def cluster(
    *,
    version: str = VERSION,
    settings: dict[str, Any] | None = None,
    workers_at_a_time: str = "",
    servers_at_a_time: str = "",
    drain: DrainOptions | None = None,
    init_machine_id: str = "",
) -> ClusterFacts:
    drain = drain or DrainOptions()
    spec = RKEControlPlaneSpec(
        kubernetes_version=version,
        cluster_name="prairie",
        machine_global_config=settings or {},
        upgrade_strategy=UpgradeStrategy(
            control_plane_concurrency=servers_at_a_time,
            control_plane_drain_options=drain,
            worker_concurrency=workers_at_a_time,
            worker_drain_options=drain,
        ),
    )
    parsed = distros.parse_version(version)
    return ClusterFacts(
        name="prairie",
        namespace="default",
        uid="u",
        created=0.0,
        spec=spec,
        distro=distros.of(parsed),
        version=parsed,
        renderer=1,
        installer=Installer(),
        tokens=Tokens("s", "a"),
        authorities={},
        endpoint=Endpoint(),
        init_machine_id=init_machine_id,
    )


def render(of: ClusterFacts, host: ObservedHost, placement: Placement, *, before: bytes = b"") -> bytes:
    probes = {"kubelet": {}} | {
        name: {} for role, names in _PROBES.items() if getattr(host.roles, role) for name in names
    }
    if host.roles.server and of.distro.components_outlive_unit:
        probes[of.distro.server_unit] = {}
    plan = {
        "version": of.spec.kubernetes_version,
        "settings": of.spec.machine_global_config,
        "labels": dict(host.node_labels),
        "join": "init" if placement.init else list(placement.servers),
        "probes": probes,
    }
    return json.dumps(plan, sort_keys=True).encode()


def retire(of: ClusterFacts, host: ObservedHost) -> bytes:
    return json.dumps({"retire": host.name, "probes": {}}).encode()


def compare(before: bytes, after: bytes) -> Change:
    old, new = json.loads(before or b"{}"), json.loads(after)
    if old == new:
        return "none"
    if old.get("retire") or new.get("retire"):
        return "restart"
    if old.get("version") != new["version"]:
        return "drain"
    if old.get("settings") != new["settings"]:
        return "restart"
    return "apply" if old.get("labels") != new["labels"] else "minor"


def explain(before: bytes, after: bytes) -> str:
    return compare(before, after) if before else "first plan"


def decide(observed: Observation) -> Decision:
    return decide_with(observed, render=render, compare=compare, retire=retire, explain=explain)
