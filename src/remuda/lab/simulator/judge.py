"""Judge of the controllers that manage model clusters, from outside: by the plans that hosts get, and the effect of
these plans on etcd.

Facts that were unknowable when a plan was given do not count: members of etcd learn of a dead host only a while later.
A quorum lost by faults alone is no violation. One that is lost because a host was stopped, while others were known to
be down, is.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from itertools import groupby

import msgspec

from remuda.agent import rules
from remuda.apiserver.storage.types import StoreEntry, StoreEvent
from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.lab.simulator.agents import SECRET_TYPE
from remuda.lab.simulator.downstream import Downstream
from remuda.lab.simulator.hosts import SERVERS, ModelHost

# The manager reads the members of etcd every 20 seconds. A read can fail, and reports of hosts take a while.
KNOWABLE_SECONDS = 75.0
_SECRETS = "secrets"
_SAME_LISTS = 2  # how often a host may get the same list of servers while the scenario does nothing


class _Secret(msgspec.Struct):
    type: str = ""
    data: dict[str, str] = {}


class _Given(msgspec.Struct, frozen=True):
    """Plan as it was given to a host."""

    whole: str
    lasting: str  # without the list of servers, which changes with machines and restarts nothing
    epoch: int


_decode = msgspec.json.Decoder(_Secret).decode


class Judge:
    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.epoch = 0  # grows with every act of a scenario: edits and faults
        self.ordered: dict[Key, float] = {}  # when a host last got an order
        self.without_quorum: set[Key] = set()  # hosts that got an order while there was no quorum to lose
        self.deliveries = 0
        self.reports = 0  # writes by which hosts repeat that nothing has changed
        self._given: dict[Key, list[_Given]] = {}

    def complain(self, what: str) -> None:
        self.complaints.append(f"{clock.now()} {what}")

    # -- plans

    def see(self, event: StoreEvent) -> Key | None:
        """Process one committed write. Return the host that got an order by it, if any."""
        entry = event.entry
        if entry.table != _SECRETS or event.type == "DELETED":
            return None
        after = _decode(entry.value)
        if after.type != SECRET_TYPE or not after.data.get(rules.PLAN):
            return None
        before = _decode(event.before.value) if isinstance(event.before, StoreEntry) else _Secret()
        agent = Key(entry.namespace, entry.name)
        if _only_repeats(before, after):
            self.reports += 1
        if after.data[rules.PLAN] != before.data.get(rules.PLAN):
            self._delivered(agent, after.data[rules.PLAN])
        elif _state(after) != rules.PENDING or _state(before) == rules.PENDING:
            return None
        elif _state(before) == rules.SUCCEEDED:
            self.complain(f"{agent} was asked to apply again what it has applied")
        self.ordered[agent] = clock.time()
        return agent

    def _delivered(self, agent: Key, plan: str) -> None:
        self.deliveries += 1
        content = base64.b64decode(plan)
        given = self._given.setdefault(agent, [])
        given.append(_Given(_digest(content), _digest(_lasting(content)), self.epoch))
        told = [one for one in given if one.epoch == self.epoch]
        lasting = [digest for digest, _ in groupby(one.lasting for one in told)]
        if len(lasting) != len(set(lasting)):
            self.complain(f"the plan of {agent} flaps: {', '.join(lasting)}")
        whole = [one.whole for one in told]
        if max(Counter(whole).values()) > _SAME_LISTS:
            self.complain(f"the list of servers of {agent} flaps: {', '.join(whole)}")

    # -- etcd

    def stopped(self, downstream: Downstream, host: ModelHost, how: str) -> None:
        """Record a host that was stopped by an act or order of the managers."""
        etcd = downstream.etcd
        member = etcd.members.get(host.member)
        if downstream.ending or member is None or not member.alive:
            return
        since = self.ordered.get(host.agent, clock.time())
        known_dead = {
            other.member
            for other in downstream.hosts.values()
            if other.stopped or (other.dead_since is not None and other.dead_since <= since - KNOWABLE_SECONDS)
        }
        present = {other.member for other in downstream.hosts.values()}
        voters = [one.name for one in etcd.voters]
        left = [name for name in voters if name in present and name not in known_dead and name != host.member]
        harmless = len(voters) == 1 and (how == "restarted" or not downstream.used)
        harmless |= how == "restarted" and host.agent in self.without_quorum
        if host.member in voters and not harmless and len(left) < len(voters) // 2 + 1:
            self.complain(f"{downstream.key}: {host.name} was {how}, and {len(left)} of {len(voters)} voters are left")
        etcd.fail(host.member)
        host.stopped = True
        if len(voters) == 1 and how != "restarted" and not downstream.used:
            downstream.begin_anew()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _lasting(content: bytes) -> bytes:
    plan = msgspec.json.decode(content)
    plan["files"] = [file for file in plan.get("files") or () if not file["path"].endswith(SERVERS)]
    return msgspec.json.encode(plan)


def _state(secret: _Secret) -> str:
    return base64.b64decode(secret.data.get(rules.STATE, "")).decode()


def _only_repeats(before: _Secret, after: _Secret) -> bool:
    names = {*before.data, *after.data}
    return {name for name in names if before.data.get(name) != after.data.get(name)} == {rules.PERIODIC_OUTPUT}
