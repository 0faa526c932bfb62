"""One-line summary of the current work, in the wording users know: `configuring etcd node(s) a,b: waiting for probes:
etcd`.

It covers the first tier that has work in progress, with details only if that is a single machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner import tiers
from remuda.providers.controlplane.planner.decision import HostStatus, Phase

_MOST_NAMES = 3
_VERBS: tuple[tuple[Phase, str], ...] = (
    ("uncordoning", "uncordoning {} node(s) {}"),
    ("draining", "draining {} node(s) {}"),
    ("configuring", "configuring {} node(s) {}"),
    ("failing", "failing {} machine(s) {}"),
    ("waiting", "non-ready {} machine(s) {}"),
)


def tell(hosts: Mapping[str, HostStatus], waits: Sequence[Wait]) -> str:
    for tier in tiers.ORDER:
        told = [_one(tier, words, phase, hosts) for phase, words in _VERBS]
        if any(told):
            return ", ".join(filter(None, told))
    leaving = sorted(name for name, status in hosts.items() if status.phase == "leaving")
    if leaving:
        return f"removing node(s) {_names(leaving)}"
    return waits[0].missing if waits else ""


def _one(tier: str, words: str, phase: Phase, hosts: Mapping[str, HostStatus]) -> str:
    found = sorted(name for name, status in hosts.items() if status.tier == tier and status.phase == phase)
    if not found:
        return ""
    wait = hosts[found[0]].wait
    details = f": {wait.missing}" if len(found) == 1 and wait is not None else ""
    return words.format(tier, _names(found)) + details


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ",".join(names[:_MOST_NAMES]) + more
