"""Who the members of etcd are, put together from what each of them says.

Every host with etcd reports the list as it sees it, and whom of it it can reach. What a host says counts unless a
majority of the others calls it unhealthy or does not list it: a host that is cut off, gone, or has left tells of days
gone by. What counts must agree; as long as it does not, nobody knows who the members are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from remuda.providers.controlplane.planner.observed import Host, Member


class Membership(msgspec.Struct, frozen=True):
    views: Mapping[str, Sequence[Member]]  # that count: by the host they are from
    hosts: Mapping[str, Host]  # with etcd, also those that are being deleted

    @property
    def known(self) -> bool:
        return bool(self.views) and not self.disputed

    @property
    def disputed(self) -> bool:
        return len({frozenset((_key(m), m.learner) for m in view) for view in self.views.values()}) > 1

    @property
    def members(self) -> list[Member]:
        """Everybody anyone lists."""
        return list({_key(member): member for view in self.views.values() for member in view}.values())

    @property
    def voters(self) -> list[Member]:
        """Also those that are learners to some only."""
        voting = {_key(member) for view in self.views.values() for member in view if not member.learner}
        return [member for member in self.members if _key(member) in voting]

    @property
    def learners(self) -> list[Member]:
        voting = {_key(member) for member in self.voters}
        return [member for member in self.members if _key(member) not in voting]

    def of(self, host: Host) -> Member | None:
        return next((member for member in self.members if _belongs(member, host)), None)

    def host_of(self, member: Member) -> Host | None:
        return next((host for host in self.hosts.values() if _belongs(member, host)), None)

    def votes(self, host: Host) -> bool:
        """All say that it is a voting member."""
        return bool(self.views) and all(
            any(_belongs(member, host) and not member.learner for member in view) for view in self.views.values()
        )

    def is_sound(self, member: Member) -> bool:
        """Nobody calls it unhealthy."""
        return all(m.healthy for m in self._said_of(member))

    def is_down(self, member: Member) -> bool:
        """Everybody calls it unhealthy."""
        return not any(m.healthy for m in self._said_of(member))

    def _said_of(self, member: Member) -> list[Member]:
        return [m for view in self.views.values() for m in view if _key(m) == _key(member)]


def gather(hosts: Sequence[Host], *, ignored: Collection[str] = ()) -> Membership:
    """`ignored`: hosts whose word is not asked for, because they go."""
    with_etcd = {host.name: host for host in hosts if host.roles.etcd}
    views = {
        host.name: host.report.members
        for host in with_etcd.values()
        if host.report.members and host.name not in ignored and not (host.node is not None and host.node.left)
    }
    counting = {name: view for name, view in views.items() if not _is_contradicted(with_etcd[name], views)}
    return Membership(counting, with_etcd)


def _is_contradicted(host: Host, views: Mapping[str, Sequence[Member]]) -> bool:
    others = [view for name, view in views.items() if name != host.name]
    against = sum(not any(_belongs(member, host) and member.healthy for member in view) for view in others)
    return against * 2 > len(others)


def says_it_is_member(host: Host) -> bool:
    return any(_belongs(member, host) for member in host.report.members or ())


def name_of(member: Member) -> str:
    """For people; one that has been added and has never started has no name yet."""
    return member.name or f"the one at {member.address}"


def node_of(member: Member) -> str:
    """The Node it runs on: the distribution adds a suffix to its name."""
    return member.name.rpartition("-")[0] or member.name


def _key(member: Member) -> str:
    return member.name or member.address


def _belongs(member: Member, host: Host) -> bool:
    if not member.name:
        return member.address in host.internal_addresses or member.address in host.external_addresses
    return bool(host.node_name) and host.node_name in (member.name, node_of(member))
