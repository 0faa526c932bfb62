"""What is to be done about a cluster now."""

from __future__ import annotations

from typing import Protocol

from remuda.providers.controlplane import render as rendering
from remuda.providers.controlplane.planner.decision import Decision
from remuda.providers.controlplane.planner.observed import Cluster, Host, Observed
from remuda.providers.controlplane.render import Change, Placement


class Render(Protocol):
    def __call__(self, cluster: Cluster, host: Host, placement: Placement, *, before: bytes = b"") -> bytes: ...


class Compare(Protocol):
    def __call__(self, before: bytes, after: bytes) -> Change: ...


class Retire(Protocol):
    def __call__(self, cluster: Cluster, host: Host) -> bytes: ...


def decide(
    observed: Observed,
    *,
    render: Render = rendering.render,
    compare: Compare = rendering.compare,
    retire: Retire = rendering.retire,
) -> Decision:
    raise NotImplementedError
