"""Model etcd: members, quorum, and a record of errors by the controllers that manage it.

It refuses what etcd refuses: a second learner, the promotion of a learner that has not caught up, the removal of a
member whose loss would break the quorum, and every change without a quorum. A lost quorum can be a fault (`fail`) or
the act of a controller that removed a host (`take_host`). Only acts are violations. The model records them,
independently of the controllers' own checks.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from remuda.kube import clock
from remuda.lab import LabError


class EtcdRefused(LabError):
    """Refusal of etcd, in its words."""


class ModelEtcdMember(msgspec.Struct):
    name: str
    learner: bool
    caught_up_at: float
    alive: bool = True


class Etcd:
    """Members of one cluster. Empty until `bootstrap`. `witness` is called with every violation at once."""

    def __init__(self, catch_up_seconds: float = 0.0, witness: Callable[[str], None] | None = None) -> None:
        self.members: dict[str, ModelEtcdMember] = {}
        self.violations: list[str] = []
        self._catch_up_seconds = catch_up_seconds
        self._witness = witness
        self._born = False
        self._ended = False

    @property
    def voters(self) -> list[ModelEtcdMember]:
        return [member for member in self.members.values() if not member.learner]

    @property
    def quorum(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def has_quorum(self) -> bool:
        return sum(member.alive for member in self.voters) >= self.quorum

    def refusal(self) -> str:
        """Return why writes are refused now; empty when they are not."""
        if self.has_quorum:
            return ""
        alive = sum(member.alive for member in self.voters)
        return f"no leader ({alive} of {len(self.voters)} voting members are alive, {self.quorum} are needed)"

    # -- actions of managers

    def bootstrap(self, name: str) -> None:
        """Create the first member of a new cluster. A second call creates a second cluster of the same name: data is
        lost.
        """
        if name in self.members:
            return
        if self._ended:
            raise EtcdRefused("the cluster has ended")
        if self._born:
            self._violated(f"{name} began a new cluster although there is one")
            raise EtcdRefused("a cluster with this name exists")
        self._born = True
        self.members[name] = ModelEtcdMember(name=name, learner=False, caught_up_at=clock.time())

    @property
    def born(self) -> bool:
        return self._born

    def adopt(self, name: str) -> None:
        """Add a member from before this model was created, as it must have been."""
        if self._ended:
            return
        self._born = True
        self.members.setdefault(name, ModelEtcdMember(name=name, learner=False, caught_up_at=clock.time()))

    def join(self, name: str) -> None:
        """Add a learner; an existing member stays unchanged."""
        if name in self.members:
            return
        self._need_quorum()
        if any(member.learner for member in self.members.values()):
            raise EtcdRefused("too many learner members in cluster")
        self.members[name] = ModelEtcdMember(
            name=name, learner=True, caught_up_at=clock.time() + self._catch_up_seconds
        )

    def promote(self, name: str) -> None:
        self._need_quorum()
        member = self._member(name)
        if not member.learner:
            return
        if not member.alive or clock.time() < member.caught_up_at:
            raise EtcdRefused("can only promote a learner member which is in sync with leader")
        member.learner = False

    def remove(self, name: str) -> None:
        """Remove a member from the list; a missing one is ignored."""
        if name not in self.members:
            return
        self._need_quorum()
        member = self.members[name]
        if not member.learner:
            others = [voter for voter in self.voters if voter is not member]
            if sum(voter.alive for voter in others) < len(others) // 2 + 1:
                raise EtcdRefused("re-configuration failed due to not enough started members")
        del self.members[name]

    def take_host(self, name: str) -> None:
        """Record that a manager removed a host. While its member is on the list, that can cost the quorum."""
        member = self.members.get(name)
        if member is None:
            return
        had_quorum = self.has_quorum
        member.alive = False
        if had_quorum and not self.has_quorum:
            self._violated(f"the quorum was lost by removing the host of {name}: {self.refusal()}")

    def end(self) -> None:
        """Record that the whole cluster is being deleted: from now on the loss of members is no violation."""
        self._ended = True
        self.members.clear()

    # -- faults of members

    def fail(self, name: str) -> None:
        self._member(name).alive = False

    def recover(self, name: str) -> None:
        self._member(name).alive = True

    def _violated(self, how: str) -> None:
        self.violations.append(how)
        if self._witness is not None:
            self._witness(how)

    def _member(self, name: str) -> ModelEtcdMember:
        member = self.members.get(name)
        if member is None:
            raise EtcdRefused("member not found")
        return member

    def _need_quorum(self) -> None:
        if why := self.refusal():
            raise EtcdRefused(why)
