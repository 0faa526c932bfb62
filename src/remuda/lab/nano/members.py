"""Member list, as etcd keeps it. Pure: the caller says which members are alive.

A new member is a learner without a vote; there is at most one. A change requires a living majority of the voters, and
must leave one. Refusals have etcd's wording. One member, the leader, has the data. `term` grows when the leader
changes, so that a server which missed it knows which list is newer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

import msgspec

from remuda.lab import LabError

NO_LEADER = "etcdserver: no leader"
TOO_MANY_LEARNERS = "etcdserver: too many learner members in cluster"
NOT_ENOUGH_STARTED = "etcdserver: re-configuration failed due to not enough started members"
NOT_FOUND = "etcdserver: member not found"


class MemberRefused(LabError):
    """Refusal, in etcd's words."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # name of the node, and a suffix that no other member of that node has had
    node: str
    address: str
    port: int = 6443  # port of its supervisor
    learner: bool = False

    @property
    def url(self) -> str:
        return f"https://{shown(self.address)}:{self.port}"

    def described(self) -> dict[str, Any]:
        """Return the member in etcd's format."""
        number = int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "big")
        return {
            "ID": number,
            "name": self.name,
            "peerURLs": [f"https://{shown(self.address)}:2380"],
            "clientURLs": [f"https://{shown(self.address)}:2379"],
            "isLearner": self.learner,
        }


class MemberList(msgspec.Struct, frozen=True, kw_only=True):
    term: int = 1
    # The member that has the data. Its name on disk and on the wire is that of earlier releases.
    leader: str = msgspec.field(name="keeper", default="")
    members: tuple[Member, ...] = ()

    def find(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)

    @property
    def voters(self) -> list[Member]:
        return [member for member in self.members if not member.learner]

    def has_majority(self, alive: Collection[str]) -> bool:
        voters = self.voters
        return sum(voter.name in alive for voter in voters) >= len(voters) // 2 + 1

    def add(self, new: Member, alive: Collection[str]) -> MemberList:
        """Add a learner. Idempotent. Raise MemberRefused."""
        known = self.find(new.name)
        if known is not None and (known.address, known.port) == (new.address, new.port):
            return self
        if any(new.node == member.node for member in self.members):
            raise MemberRefused("duplicate node name found, please use a unique name for this node")
        if not self.has_majority(alive):
            raise MemberRefused(NO_LEADER)
        if any(member.learner for member in self.members):
            raise MemberRefused(TOO_MANY_LEARNERS)
        return self._with((*self.members, msgspec.structs.replace(new, learner=True)))

    def promote(self, name: str, alive: Collection[str]) -> MemberList:
        """Promote a learner. Raise MemberRefused."""
        if self.find(name) is None:
            raise MemberRefused(NOT_FOUND)
        promoted = self._with(
            tuple(msgspec.structs.replace(one, learner=False) if one.name == name else one for one in self.members)
        )
        if not self.has_majority(alive) or not promoted.has_majority(alive):
            raise MemberRefused(NOT_ENOUGH_STARTED)
        return promoted

    def remove(self, name: str, alive: Collection[str]) -> MemberList:
        """Remove a member. Raise MemberRefused."""
        member = self.find(name)
        if member is None:
            raise MemberRefused(NOT_FOUND)
        if not self.has_majority(alive):
            raise MemberRefused(NO_LEADER)
        rest = self._with(tuple(one for one in self.members if one.name != name))
        if not rest.voters or not rest.has_majority(alive):
            raise MemberRefused(NOT_ENOUGH_STARTED)
        return rest

    def _with(self, members: tuple[Member, ...]) -> MemberList:
        return msgspec.structs.replace(self, members=members)


def shown(address: str) -> str:
    return f"[{address}]" if ":" in address else address
