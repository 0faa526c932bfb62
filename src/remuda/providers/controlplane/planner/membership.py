"""Members of etcd, combined from the reports of all hosts.

Every host with etcd reports the member list as it sees it, and which members it can reach. A host's report counts
unless a majority of the others calls the host unhealthy or does not list it: a host that is cut off, gone, or has left
reports outdated facts. The reports that count must agree; until they do, the members are unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from remuda.providers.controlplane.planner.observation import EtcdMember, ObservedHost


class Membership(msgspec.Struct, frozen=True):
    views: Mapping[str, Sequence[EtcdMember]]  # that count: by the host they are from
    hosts: Mapping[str, ObservedHost]  # with etcd, also those that are being deleted

    @property
    def known(self) -> bool:
        return bool(self.views) and not self.disputed

    @property
    def disputed(self) -> bool:
        return len({frozenset((_key(m), m.learner) for m in view) for view in self.views.values()}) > 1

    @property
    def members(self) -> list[EtcdMember]:
        """Return every member that any counted report lists."""
        return list({_key(member): member for view in self.views.values() for member in view}.values())

    @property
    def voters(self) -> list[EtcdMember]:
        """Return the voting members, including those that only some reports list as learners."""
        voting = {_key(member) for view in self.views.values() for member in view if not member.learner}
        return [member for member in self.members if _key(member) in voting]

    @property
    def learners(self) -> list[EtcdMember]:
        voting = {_key(member) for member in self.voters}
        return [member for member in self.members if _key(member) not in voting]

    def of(self, host: ObservedHost) -> EtcdMember | None:
        return next((member for member in self.members if _belongs(member, host)), None)

    def host_of(self, member: EtcdMember) -> ObservedHost | None:
        return next((host for host in self.hosts.values() if _belongs(member, host)), None)

    def votes(self, host: ObservedHost) -> bool:
        """Return whether all counted reports list the host as a voting member."""
        return bool(self.views) and all(
            any(_belongs(member, host) and not member.learner for member in view) for view in self.views.values()
        )

    def is_sound(self, member: EtcdMember) -> bool:
        """Return whether no counted report calls the member unhealthy."""
        return all(m.healthy for m in self._said_of(member))

    def is_down(self, member: EtcdMember) -> bool:
        """Return whether all counted reports call the member unhealthy."""
        return not any(m.healthy for m in self._said_of(member))

    def _said_of(self, member: EtcdMember) -> list[EtcdMember]:
        return [m for view in self.views.values() for m in view if _key(m) == _key(member)]


def gather(hosts: Sequence[ObservedHost], *, ignored: Collection[str] = ()) -> Membership:
    """Combine the reports of all hosts. `ignored`: hosts that leave, whose reports do not count."""
    with_etcd = {host.name: host for host in hosts if host.roles.etcd}
    views = {
        host.name: host.report.members
        for host in with_etcd.values()
        if host.report.members and host.name not in ignored and not (host.node is not None and host.node.left)
    }
    counting = {name: view for name, view in views.items() if not _is_contradicted(with_etcd[name], views)}
    return Membership(counting, with_etcd)


def _is_contradicted(host: ObservedHost, views: Mapping[str, Sequence[EtcdMember]]) -> bool:
    others = [view for name, view in views.items() if name != host.name]
    against = sum(not any(_belongs(member, host) and member.healthy for member in view) for view in others)
    return against * 2 > len(others)


def reports_membership(host: ObservedHost) -> bool:
    return any(_belongs(member, host) for member in host.report.members or ())


def name_of(member: EtcdMember) -> str:
    """Return a name for messages: a member that was added and has never started has no name yet."""
    return member.name or f"the one at {member.address}"


def node_of(member: EtcdMember) -> str:
    """Return the Node that the member runs on: the member's name is the Node's with a suffix."""
    return member.name.rpartition("-")[0] or member.name


def _key(member: EtcdMember) -> str:
    return member.name or member.address


def _belongs(member: EtcdMember, host: ObservedHost) -> bool:
    if not member.name:
        return member.address in host.internal_addresses or member.address in host.external_addresses
    return bool(host.node_name) and host.node_name in (member.name, node_of(member))
