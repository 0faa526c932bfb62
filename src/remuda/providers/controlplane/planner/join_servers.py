"""By which servers a host may join: all of them that stay, so that one dead server blocks nobody.

Servers join by hosts with etcd, workers by control planes. The order is that of age and changes only when machines come
and go: the list is part of a plan, and whoever joins takes the first that answers. Those nobody counts on come last.
Servers that are being deleted are listed only where nobody could join otherwise: the last server may be replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.membership import Membership
from remuda.providers.controlplane.planner.observation import Host
from remuda.providers.shared.distros import Distro


def servers(distro: Distro, hosts: Sequence[Host], membership: Membership, joiner: Host) -> tuple[str, ...]:
    listed = [host for host in hosts if host.name != joiner.name and address(host) and _serves(host, joiner)]
    staying = [host for host in listed if not host.deleting]
    if not any(_has_joined(host, membership) for host in staying):
        staying += [host for host in listed if host.deleting and _has_joined(host, membership)]
    staying.sort(key=lambda host: (host.deleting, bool(host.failed), host.created, host.name))
    return tuple(url(distro, host) for host in staying)


def _serves(host: Host, joiner: Host) -> bool:
    return host.roles.etcd if joiner.roles.server else host.roles.control_plane


def _has_joined(host: Host, membership: Membership) -> bool:
    """Itself: others can join by it."""
    if host.roles.etcd and membership.views:
        return membership.of(host) is not None
    return progress.was_ever_applied(host)


def address(host: Host) -> str:
    return next(iter((*host.internal_addresses, *host.external_addresses)), "")


def url(distro: Distro, host: Host) -> str:
    name = address(host)
    return f"https://{f'[{name}]' if ':' in name else name}:{distro.supervisor_port}"
