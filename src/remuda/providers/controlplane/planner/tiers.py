"""The order in which hosts are changed, and how many of them at a time.

bootstrap (the init node) → etcd → control plane → worker. Voters of etcd go one at a time whatever the user says; the
guard of the quorum comes on top of it.
"""

from __future__ import annotations

from remuda.capi import amounts
from remuda.providers.controlplane.planner.decision import Tier
from remuda.providers.controlplane.planner.observation import Host
from remuda.providers.shared.types.configuration import UpgradeStrategy

ORDER: tuple[Tier, ...] = ("bootstrap", "etcd", "control plane", "worker")


def tier_of(host: Host, init: Host | None) -> Tier | None:
    if host.roles.etcd:
        return "bootstrap" if init is not None and host.name == init.name else "etcd"
    if host.roles.control_plane:
        return "control plane"
    return "worker" if host.roles.worker else None


def group(tier: Tier) -> Tier:
    """Tiers that share their turns: the init node is one of the etcd hosts."""
    return "etcd" if tier == "bootstrap" else tier


def at_a_time(strategy: UpgradeStrategy, tier: Tier, count: int) -> int:
    """Return how many of `count` hosts of a tier may be out of service at a time."""
    if group(tier) == "etcd":
        return 1
    wanted = strategy.control_plane_concurrency if tier == "control plane" else strategy.worker_concurrency
    number = amounts.resolve(int(wanted) if wanted.isdecimal() else wanted or 1, count, up=True)
    return number or count
