"""Renderer of plans: from a cluster and a host to the plan that brings the host to its desired state. Pure, and stable
to the byte.

The same desired state always gives the same bytes: the plan format has a version (`ClusterFacts.renderer`), and a
released version never changes. Golden files in the tests verify this. The scripts and the tool in `distros/` are part
of the format.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remuda.providers.controlplane.planner.observation import ClusterFacts, ObservedHost
from remuda.providers.controlplane.render import instructions, layout, tunnel
from remuda.providers.controlplane.render.config import configure
from remuda.providers.controlplane.render.consequence import Change, compare, stamps
from remuda.providers.controlplane.render.files import INIT, files, vanished
from remuda.providers.controlplane.render.instructions import probes
from remuda.providers.controlplane.render.plan import Plan, read, write
from remuda.providers.shared.distros.contract import text

__all__ = ["CURRENT", "Change", "Placement", "compare", "dropped", "render", "retire"]

CURRENT = 1  # the version that new clusters get


class Placement(msgspec.Struct, frozen=True):
    """Placement of a host in the cluster: whether it begins the cluster, else which servers it may join by."""

    init: bool = False
    servers: Sequence[str] = ()  # https://10.0.0.5:9345: tried in this order


def render(cluster: ClusterFacts, host: ObservedHost, placement: Placement, *, before: bytes = b"") -> bytes:
    """Render the plan. `before`: the host's current plan; files that this plan drops are deleted."""
    _check(cluster)
    configuration = configure(cluster, host)
    now = files(cluster, host, configuration, [INIT] if placement.init else placement.servers)
    gone = vanished(read(before), now, layout.of(cluster)) if before else []
    plan = Plan(
        files=[*now, *gone],
        instructions=[
            instructions.install(cluster, host, stamps(cluster, now), text(configuration.values.get("profile") or "")),
            *tunnel.remove(cluster, gone),
        ],
        periodic=[
            *tunnel.keep(cluster, host),
            *([instructions.members(cluster, host)] if host.roles.etcd else []),
            instructions.unit_status(cluster, host),
        ],
        probes=probes(cluster, host, configuration.values),
    )
    return write(plan)


def retire(cluster: ClusterFacts, host: ObservedHost) -> bytes:
    """The plan of a host that leaves: its services end, and do not start again."""
    _check(cluster)
    return write(Plan(instructions=[*tunnel.retire(cluster, host), instructions.retire(cluster, host)]))


def dropped(cluster: ClusterFacts, host: ObservedHost) -> list[str]:
    """Return the user's settings that this host will not have, each with the reason: sentences for warnings."""
    return configure(cluster, host).kept_back


def _check(cluster: ClusterFacts) -> None:
    if cluster.renderer != CURRENT:
        raise ValueError(f"this release cannot write plans of renderer {cluster.renderer}, only of renderer {CURRENT}")
