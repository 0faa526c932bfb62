"""Rolling updates against a model that knows the truth.

The model keeps servers, the MachineSets as stored, and what each controller has seen of them, which lags behind at
will: watches are late, reports are late, controllers stop between two writes, writes conflict. Servers come up late or
never, fall over, are deleted or marked by the user; the user scales, changes templates back and forth, and changes the
strategy in the middle. At every creation and deletion the model judges by the truth, not by the planner's own numbers.
What nobody could have known is not held against the planner: a server that fell by itself after the report a decision
was made on counts as if it still stood, for that decision only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from remuda.capi import names
from remuda.capi.machinedeployment import rollout
from remuda.capi.machinedeployment.rollout import MachineSetCounts, RolloutLimits
from remuda.capi.machineset import members
from remuda.capi.types import Machine, MachineStatus, NodeReference
from remuda.kube import clock
from remuda.kube.conditions import condition
from remuda.kube.objects import ObjectMeta


@dataclass(eq=False)
class Server:
    of: str
    born: int
    up: bool = False
    deleting: bool = False
    gone: bool = False
    marked: bool = False
    taken_by_us: bool = False
    fell: int = -1  # when it last stopped by itself

    def machine(self) -> Machine:
        return Machine(
            metadata=ObjectMeta(
                name=f"m{self.born:04}",
                creation_timestamp=clock.rfc3339(self.born),
                deletion_timestamp=clock.rfc3339(0) if self.deleting else None,
                annotations={names.DELETE_MACHINE: ""} if self.marked else {},
            ),
            status=MachineStatus(
                node_ref=NodeReference(name="n"),
                conditions=[condition("Available", self.up, "Any")],
            ),
        )


@dataclass(eq=False)
class Order:
    """One version of a MachineSet's spec, and what its author knew."""

    wanted: int
    generation: int
    given: int
    knowledge: dict[str, int]  # when each set had last reported
    available: dict[str, int]  # and how many it had


@dataclass(frozen=True)
class Report:
    generation: int = 0
    existing: int = 0
    available: int = 0
    at: int = -1


@dataclass(frozen=True)
class Stored:
    """A MachineSet as one read of it shows it; equal only if nothing was written in between."""

    order: Order
    report: Report
    version: int


@dataclass(eq=False)
class Set:
    name: str
    template: int
    stored: Stored
    acting: Order | None = None
    seen: Stored = field(init=False)
    wanted: dict[int, int] = field(default_factory=dict)  # by generation

    def __post_init__(self) -> None:
        self.seen = self.stored
        self.wanted[self.stored.order.generation] = self.stored.order.wanted

    def write(self, **changes: Any) -> None:
        old = self.stored
        if "order" in changes:
            self.wanted[changes["order"].generation] = changes["order"].wanted
        self.stored = Stored(
            changes.get("order", old.order), changes.get("report", old.report), self.stored.version + 1
        )


SMALL = st.integers(0, 3)


class Rollouts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.servers: list[Server] = []
        self.sets: dict[str, Set] = {}
        self.template = 0
        self.in_force: list[tuple[int, RolloutLimits]] = []

    @initialize(replicas=st.integers(0, 5), surge=SMALL, unavailable=SMALL, order=st.sampled_from(["Oldest", "Newest"]))
    def begin(self, replicas: int, surge: int, unavailable: int, order: str) -> None:
        self.deletion_order = order
        self.set_limits(replicas, surge, unavailable)

    # The user.

    def set_limits(self, replicas: int, surge: int, unavailable: int) -> None:
        self.limits = RolloutLimits(replicas, surge, unavailable if surge or unavailable else 1)
        self.in_force.append((self.tick(), self.limits))

    @rule(replicas=st.integers(0, 6))
    def user_scales(self, replicas: int) -> None:
        self.set_limits(replicas, self.limits.surge, self.limits.unavailable)

    @rule(surge=SMALL, unavailable=SMALL)
    def user_changes_strategy(self, surge: int, unavailable: int) -> None:
        self.set_limits(self.limits.replicas, surge, unavailable)

    @rule(template=st.integers(0, 2))
    def user_changes_template(self, template: int) -> None:
        self.template = template

    @precondition(lambda self: self.present())
    @rule(data=st.data())
    def user_marks(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.present())).marked = True

    @precondition(lambda self: self.present())
    @rule(data=st.data())
    def user_deletes(self, data: st.DataObject) -> None:
        server = data.draw(st.sampled_from(self.present()))
        self.fall(server)
        server.deleting = True

    # The servers.

    @rule(data=st.data(), count=st.integers(1, 4))
    def come_up(self, data: st.DataObject, count: int) -> None:
        for server in [one for one in self.present() if not one.up and not one.deleting][:count]:
            server.up = data.draw(st.booleans())

    @precondition(lambda self: self.present())
    @rule(data=st.data())
    def falls_over(self, data: st.DataObject) -> None:
        self.fall(data.draw(st.sampled_from(self.present())))

    @rule(count=st.integers(1, 4))
    def deletions_finish(self, count: int) -> None:
        for server in [one for one in self.present() if one.deleting][:count]:
            server.gone = True

    # The MachineDeployment controller.

    @rule(writes=st.sampled_from([0, 1, 2, 9, 9, 9]))
    def plan(self, writes: int = 9) -> None:
        """Stops after so many writes, as a crash would make it."""
        seen = list(self.sets.values())
        new = next((one for one in seen if one.template == self.template), None)
        counts = {one.name: _counts(one) for one in seen}
        new_counts = counts[new.name] if new else MachineSetCounts("none", 0)
        old = [counts[one.name] for one in seen if one is not new]
        plan = rollout.rolling(new_counts, old, self.limits)
        self.judge_plan(plan, new_counts, old)
        done = self.write(plan, new, writes)
        if done and all(one.reported for one in (new_counts, *old)):
            for one in self.sets.values():
                one.stored.order.given = self.tick()

    def write(self, plan: rollout.RolloutPlan, new: Set | None, writes: int) -> bool:
        for name, size in plan.sizes.items():
            one = self.sets.get(name)
            if one is not None and size == one.seen.order.wanted:
                continue
            if writes == 0:
                return False
            writes -= 1
            if one is None:
                self.create_set(size)
            elif one.seen is not one.stored:
                return False  # a conflict
            else:
                one.write(order=self.order(size, one.stored.order.generation + 1))
                one.seen = one.stored
        return all(one.seen is one.stored for one in self.sets.values())

    def create_set(self, size: int) -> None:
        name = f"set-{len(self.sets)}"
        self.sets[name] = Set(name, self.template, Stored(self.order(size, 1), Report(), 1))

    def order(self, wanted: int, generation: int) -> Order:
        knowledge = {one.name: one.seen.report.at for one in self.sets.values()}
        available = {one.name: one.seen.report.available for one in self.sets.values()}
        return Order(wanted, generation, self.tick(), knowledge, available)

    @precondition(lambda self: self.sets)
    @rule(data=st.data())
    def deployment_watches(self, data: st.DataObject) -> None:
        one = self.sets[data.draw(st.sampled_from(sorted(self.sets)))]
        one.seen = one.stored

    # The MachineSet controller.

    @precondition(lambda self: self.sets)
    @rule(data=st.data())
    def set_watches(self, data: st.DataObject) -> None:
        one = self.sets[data.draw(st.sampled_from(sorted(self.sets)))]
        one.acting = one.stored.order

    @precondition(lambda self: self.sets)
    @rule(data=st.data(), most=st.integers(1, 9))
    def set_acts(self, data: st.DataObject, most: int) -> None:
        self.act(self.sets[data.draw(st.sampled_from(sorted(self.sets)))], most)

    def act(self, one: Set, most: int = 99) -> None:
        if one.acting is None:
            return
        mine = [server for server in self.present() if server.of == one.name]
        surplus = len(mine) - one.acting.wanted
        for _ in range(min(-surplus, most)):
            self.create(one)
        by_name = {server.machine().metadata.name: server for server in mine}
        machines = [server.machine() for server in mine]
        for machine in members.choose_victims(machines, surplus, self.deletion_order)[:most]:
            self.delete(one, by_name[machine.metadata.name])

    @precondition(lambda self: self.sets)
    @rule(data=st.data())
    def set_reports(self, data: st.DataObject) -> None:
        self.report(self.sets[data.draw(st.sampled_from(sorted(self.sets)))])

    def report(self, one: Set) -> None:
        if one.acting is not one.stored.order:
            return  # a conflict: what it read has changed
        mine = [server.machine() for server in self.present() if server.of == one.name]
        available = sum(map(members.is_available, mine))
        one.write(report=Report(one.acting.generation, len(mine), available, self.tick()))

    # Everybody at once, so that walks get far: the rules above alone seldom finish a step.

    @rule(rounds=st.integers(1, 4), most=st.integers(1, 9), finish=st.booleans())
    def everybody_works(self, rounds: int, most: int, finish: bool) -> None:
        for _ in range(rounds):
            self.plan()
            for one in self.sets.values():
                one.acting = one.stored.order
                self.act(one, most)
                self.report(one)
                one.seen = one.stored
            if finish:
                self.deletions_finish(99)

    @rule()
    def new_servers_come_up(self) -> None:
        for server in self.present():
            server.up = server.up or (not server.deleting and self.sets[server.of].template == self.template)

    # The judge.

    def create(self, one: Set) -> None:
        self.servers.append(Server(one.name, self.tick()))
        assert one.acting is not None
        if self.replaces_a_loss_nobody_knew_of(one, one.acting):
            return
        ceiling = max(limits.ceiling for limits in self.limits_since(one.acting.given))
        present = len(self.present())
        assert present <= ceiling, f"{one.name} made a machine: {present} of {ceiling} allowed"

    def replaces_a_loss_nobody_knew_of(self, one: Set, order: Order) -> bool:
        """The set's last report has more machines than there are now, and its order has not been raised since: somebody
        else took some, and who affirmed or lowered the order could not know."""
        report = one.stored.report
        members = sum(server.of == one.name for server in self.present())
        since = [wanted for generation, wanted in sorted(one.wanted.items()) if generation >= report.generation]
        raised = any(later > earlier for earlier, later in pairwise(since))
        return report.generation > 0 and not raised and members <= report.existing

    def delete(self, one: Set, server: Server) -> None:
        if server.deleting:
            return
        if server.marked:
            self.fall(server)
        elif server.up:
            self.judge_deletion(one, server)
        server.taken_by_us = not server.marked
        server.deleting = True

    def judge_deletion(self, one: Set, server: Server) -> None:
        rivals = [other for other in self.present() if other.of == one.name and not other.deleting]
        assert all(other.up for other in rivals), "an available machine went before one that is not"
        ages = [other.born for other in rivals]
        first = min(ages) if self.deletion_order == "Oldest" else max(ages)
        assert server.born == first, f"{self.deletion_order} was to go first"
        assert one.acting is not None
        counted_on = min(one.acting.available.get(one.name, 0), one.acting.wanted)
        if sum(other.up for other in rivals if other is not server) >= counted_on:
            return  # as many stay as the order was given for; those that came up since were nobody's promise
        floor = min(limits.floor for limits in self.limits_since(one.acting.given))
        standing = sum(self.counts_as_standing(other, one.acting) for other in self.servers if other is not server)
        assert standing >= floor, f"{one.name} deleted an available machine: {standing} left, {floor} promised"

    def counts_as_standing(self, server: Server, order: Order) -> bool:
        if server.up and not server.deleting and not server.gone:
            return True
        return not server.taken_by_us and server.fell > order.knowledge.get(server.of, -1)

    def judge_plan(self, plan: rollout.RolloutPlan, new: MachineSetCounts, old: list[MachineSetCounts]) -> None:
        takes_available = any(plan.sizes[one.name] < min(one.wanted, one.available) for one in old)
        if takes_available:
            left = [one.name for one in old if plan.sizes[one.name] > one.available]
            assert not left, f"available machines were to go while {left} have others"
        if plan.sizes[new.name] < new.wanted:
            unmade = new.wanted - new.existing
            excess = new.wanted - self.limits.replicas
            assert new.wanted - plan.sizes[new.name] <= max(unmade, excess), "a new machine was to go before old ones"

    @invariant()
    def sizes_are_sane(self) -> None:
        assert all(one.stored.order.wanted >= 0 for one in self.sets.values())

    # Failures stop: it must arrive.

    def teardown(self) -> None:
        if not self.in_force:
            return
        for _ in range(120):
            self.settle_once()
            if self.arrived():
                break
        assert self.arrived(), f"stuck: {[(s.name, _counts(s)) for s in self.sets.values()]} of {self.limits}"
        sizes = {one.name: one.stored.order.wanted for one in self.sets.values()}
        self.plan()
        assert sizes == {one.name: one.stored.order.wanted for one in self.sets.values()}

    def settle_once(self) -> None:
        self.plan()
        for one in self.sets.values():
            one.acting = one.stored.order
            self.act(one)
            self.report(one)
            one.seen = one.stored
        for server in self.present():
            server.gone = server.deleting
            # Old servers that are broken stay so; those of the present template are repaired.
            server.up = server.up or self.sets[server.of].template == self.template

    def arrived(self) -> bool:
        present = [(self.sets[server.of].template, server.up) for server in self.present()]
        wanted = {one.template: one.stored.order.wanted for one in self.sets.values()}
        return (
            present == [(self.template, True)] * self.limits.replicas
            and wanted.pop(self.template, None) == self.limits.replicas
            and not any(wanted.values())
        )

    # Facts.

    def present(self) -> list[Server]:
        return [server for server in self.servers if not server.gone]

    def fall(self, server: Server) -> None:
        if server.up and not server.deleting:
            server.fell = self.tick()
        server.up = False

    def limits_since(self, moment: int) -> list[RolloutLimits]:
        later = [limits for at, limits in self.in_force if at >= moment]
        before = [limits for at, limits in self.in_force if at < moment]
        return [*before[-1:], *later]

    def tick(self) -> int:
        self.now += 1
        return self.now


def _counts(one: Set) -> MachineSetCounts:
    order, report = one.seen.order, one.seen.report
    return MachineSetCounts(
        one.name, order.wanted, report.existing, report.available, report.generation == order.generation
    )


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
