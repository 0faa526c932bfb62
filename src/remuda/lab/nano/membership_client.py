"""Messages between servers about etcd, and the source of a server's own view of the cluster.

Every server reports to the leader once per heartbeat interval; the answer is the state of the cluster. Intervals are
etcd's own flags: `etcd-arg: [heartbeat-interval=…, election-timeout=…]`, in milliseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from remuda.lab.nano.configuration import Configuration, FatalError
from remuda.lab.nano.layout import read_or_none, write_file
from remuda.lab.nano.members import Member, MemberList, shown


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Heartbeat report of one server."""

    node: str
    address: str
    port: int  # port for other servers
    api_port: int = 6443
    member: str = ""  # its name in etcd; empty: no member
    api: bool = True  # it serves the API
    version: str = ""

    @property
    def url(self) -> str:
        return f"https://{shown(self.address)}:{self.port}"

    @property
    def api_url(self) -> str:
        return f"https://{shown(self.address)}:{self.api_port}"

    def as_member(self) -> Member:
        return Member(name=self.member, node=self.node, address=self.address, port=self.port)


class MembershipState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the cluster, as the leader knows it."""

    members: MemberList
    alive: tuple[str, ...] = ()  # names of living members
    leader: bool = False  # a majority of the voters is alive, including the leader
    apiservers: tuple[str, ...] = ()  # URLs of the servers that serve the API


class Intervals(msgspec.Struct, frozen=True):
    heartbeat: float = 1.0
    election: float = 5.0  # a member that is silent for this long is dead


class ClusterMember(Protocol):
    """Membership of a server among the others."""

    own: Heartbeat

    def standing(self) -> MembershipState: ...


def intervals(configuration: Configuration) -> Intervals:
    """Read the intervals. Raise FatalError."""
    try:
        heartbeat = float(configuration.argument("etcd-arg", "heartbeat-interval", "1000"))
        election = float(configuration.argument("etcd-arg", "election-timeout", "5000"))
    except ValueError:
        raise FatalError("etcd-arg: heartbeat-interval and election-timeout are numbers of milliseconds") from None
    if not 10 <= heartbeat <= election / 2:
        raise FatalError("etcd-arg: election-timeout must be at least twice the heartbeat-interval")
    return Intervals(heartbeat / 1000, election / 1000)


def load(path: Path) -> MemberList | None:
    """Return the list as this server last knew it. Raise FatalError."""
    content = read_or_none(path)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=MemberList)
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise FatalError(f"{path} is damaged: restore it from a backup") from None


def save(path: Path, members: MemberList) -> None:
    write_file(path, msgspec.json.format(msgspec.json.encode(members)))
