"""From a cluster and a host to the plan that makes the host what it shall be. Pure, and stable to the byte.

The same intent gives the same bytes for ever: how plans are written has a version (`Cluster.renderer`), and a version
never changes once it has been released. Golden files in the tests hold it to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from remuda.providers.controlplane.planner.observed import Cluster, Host

CURRENT = 1  # the version that new clusters get

# What a change of plan means for the host, from least to most.
Change = Literal["none", "minor", "apply", "restart", "drain"]


class Placement(msgspec.Struct, frozen=True):
    """Where a host stands among the others: whether it begins the cluster, else by which servers it may join."""

    init: bool = False
    servers: Sequence[str] = ()  # https://10.0.0.5:9345: tried in this order


def render(cluster: Cluster, host: Host, placement: Placement, *, before: bytes = b"") -> bytes:
    """The plan. `before`: the one the host has; files that were in it and are in this one no more are taken away."""
    raise NotImplementedError


def retire(cluster: Cluster, host: Host) -> bytes:
    """The plan of a host that leaves: its services end, and do not start again."""
    raise NotImplementedError


def compare(before: bytes, after: bytes) -> Change:
    """`minor`: files nobody needs to wait for. `apply`: nothing is restarted. `restart`: the service is. `drain`: and
    Pods are moved away before, where the user wants that."""
    raise NotImplementedError
