"""Plan of a drain: the pods to evict from a Node now, later or never. All of the drain that needs no I/O.

A pod passes the filters in a fixed order and the first filter that matches decides. Then only the pods of the lowest
order are evicted; the others wait until those are gone. Every pass makes a new plan from the pods on the Node, so a
drain can be interrupted anywhere. Two invariants hold: a pod that no filter exempts is never forgotten, and a plan that
evicts nothing and waits for nothing means that the Node is drained.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from remuda.capi import names
from remuda.capi.machine.workload import MIRROR_POD, Pod
from remuda.capi.types import Cluster, Machine, MachineDrainRule
from remuda.capi.types.shared import Selector
from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.kube.selectors import EVERYTHING, LabelSelector, SelectorError
from remuda.runtime.outcome import Retryable

Behaviour = Literal["Drain", "Skip", "WaitCompleted"]

# A deleted Pod on a Node that no longer reports counts as ended after this time.
GONE_AFTER_SECONDS = 1.0

_NAMES_SHOWN = 3
_REFUSALS_SHOWN = 5


class DrainDecision(NamedTuple):
    behaviour: Behaviour
    order: int = 0
    why: str = ""


class Rule(NamedTuple):
    """Compiled MachineDrainRule."""

    name: str
    behaviour: Behaviour
    order: int
    # selectors of the pod and of its namespace; an empty list means every pod
    pods: Sequence[tuple[LabelSelector, LabelSelector]]

    def selects(self, pod: Mapping[str, str], namespace: Mapping[str, str]) -> bool:
        return not self.pods or any(by_pod.matches(pod) and where.matches(namespace) for by_pod, where in self.pods)


class DrainPlan(NamedTuple):
    """Plan in which every pod of the Node appears exactly once."""

    stay: Sequence[Pod]  # not touched, not waited for
    leaving: Sequence[Pod]  # already deleted, still shutting down
    evict: Sequence[Pod]
    complete: Sequence[Pod]  # end by themselves; the drain waits for them
    evict_later: Sequence[Pod]
    complete_later: Sequence[Pod]

    @property
    def finished(self) -> bool:
        return not (self.leaving or self.evict or self.complete or self.evict_later or self.complete_later)

    @property
    def is_at_work(self) -> bool:
        """Return True while pods of the lowest order are still there: the others wait for them."""
        return bool(self.leaving or self.evict or self.complete)

    def without(self, gone: Sequence[Pod]) -> DrainPlan:
        """Return the plan without pods that turned out not to exist any more."""
        keys = {pod.key for pod in gone}
        return self._replace(evict=[pod for pod in self.evict if pod.key not in keys])


class EvictionRefusal(NamedTuple):
    """Eviction that the workload cluster refused."""

    pod: Pod
    why: str


class DrainFacts(NamedTuple):
    """Facts that decide about a pod besides the pod itself."""

    now: float
    unreachable: bool
    daemon_sets: Collection[Key]  # existing DaemonSets among those that the pods name
    namespace_labels: Mapping[str, Mapping[str, str]]
    rules: Sequence[Rule]  # rules that apply to this Machine, see `rules_for`


# ---- the filters -------------------------------------------------------------------------------------------------


def verdict(pod: Pod, around: DrainFacts) -> DrainDecision:
    # The kubelet removes a deleted Pod. While it does not report, the wait for the Pod would never end.
    if around.unreachable and _deleted_before(pod, around.now - GONE_AFTER_SECONDS):
        return DrainDecision("Skip", why="deleted, and its Node is unreachable")
    # The DaemonSet must exist: Pods that a deleted one has left behind are evicted like all others.
    if not pod.finished and daemon_set_of(pod) in around.daemon_sets:
        return DrainDecision("Skip", why="its DaemonSet would recreate it")
    if MIRROR_POD in pod.metadata.annotations:
        return DrainDecision("Skip", why="a static pod")
    # The label of a Pod takes precedence over every MachineDrainRule.
    labelled = _by_label(pod)
    if labelled is not None:
        return labelled
    where = around.namespace_labels.get(pod.metadata.namespace, {})
    for rule in around.rules:
        if rule.selects(pod.metadata.labels, where):
            return DrainDecision(rule.behaviour, rule.order, f"MachineDrainRule {rule.name}")
    return DrainDecision("Drain")


def warnings(pod: Pod) -> list[str]:
    """Return warnings about losses that a user might not expect from the eviction of this pod."""
    found = []
    if any(volume.empty_dir is not None for volume in pod.spec.volumes):
        found.append("its local storage (emptyDir) is deleted with it")
    if pod.metadata.controller is None and not pod.finished:
        found.append("no controller recreates it on another Node")
    return found


def daemon_set_of(pod: Pod) -> Key | None:
    owner = pod.metadata.controller
    if owner is None or owner.kind != "DaemonSet":
        return None
    return Key(pod.metadata.namespace, owner.name)


def _deleted_before(pod: Pod, moment: float) -> bool:
    deleted = pod.metadata.deletion_timestamp
    return deleted is not None and clock.parse(deleted) < moment


def _by_label(pod: Pod) -> DrainDecision | None:
    match pod.metadata.labels.get(names.POD_DRAIN, "").lower():
        case "skip":
            return DrainDecision("Skip", why=f"label {names.POD_DRAIN}=skip")
        case "wait-completed":
            return DrainDecision("WaitCompleted", why=f"label {names.POD_DRAIN}=wait-completed")
    return None


# ---- the rules ---------------------------------------------------------------------------------------------------


class BadRule(Retryable):
    """Rule that cannot be parsed. Nothing is evicted while there is one, because it might exempt a pod."""


def rules_for(machine: Machine, cluster: Cluster, rules: Iterable[MachineDrainRule]) -> list[Rule]:
    """Return the rules of the namespace that apply to this Machine, in order of their names."""
    found = []
    for rule in sorted(rules, key=lambda rule: rule.metadata.name):
        try:
            if _speaks_of(rule, machine.metadata.labels, cluster.metadata.labels):
                found.append(_compiled(rule))
        except SelectorError as error:
            raise BadRule(f"MachineDrainRule {rule.metadata.name} has an invalid selector: {error}") from error
    return found


def need_namespaces(rules: Iterable[Rule]) -> bool:
    return any(not namespaces.empty for rule in rules for _, namespaces in rule.pods)


def _speaks_of(rule: MachineDrainRule, machine: Mapping[str, str], cluster: Mapping[str, str]) -> bool:
    return not rule.spec.machines or any(
        _selector(each.selector).matches(machine) and _selector(each.cluster_selector).matches(cluster)
        for each in rule.spec.machines
    )


def _compiled(rule: MachineDrainRule) -> Rule:
    drain = rule.spec.drain
    behaviour = _behaviour(drain.behavior)
    return Rule(
        name=rule.metadata.name,
        behaviour=behaviour,
        order=drain.order or 0,
        pods=[(_selector(each.selector), _selector(each.namespace_selector)) for each in rule.spec.pods],
    )


def _behaviour(text: str) -> Behaviour:
    """Return the behaviour; a value added by a later API version counts as the most careful known one,
    WaitCompleted."""
    match text:
        case "Drain" | "Skip":
            return text
        case _:
            return "WaitCompleted"


def _selector(selector: Selector | None) -> LabelSelector:
    return EVERYTHING if selector is None else selector.compile()


# ---- the plan ----------------------------------------------------------------------------------------------------


def plan(pods: Iterable[Pod], around: DrainFacts) -> DrainPlan:
    judged = [(pod, _unless_over(pod, verdict(pod, around))) for pod in pods]
    lowest = min((found.order for _, found in judged if found.behaviour != "Skip"), default=0)

    def those(behaviour: Behaviour, now: bool) -> list[Pod]:
        return [
            pod
            for pod, found in judged
            if found.behaviour == behaviour and (found.order == lowest) == now and not _leaves(pod, found)
        ]

    return DrainPlan(
        stay=[pod for pod, found in judged if found.behaviour == "Skip"],
        leaving=[pod for pod, found in judged if _leaves(pod, found)],
        evict=those("Drain", True),
        complete=those("WaitCompleted", True),
        evict_later=those("Drain", False),
        complete_later=those("WaitCompleted", False),
    )


def _unless_over(pod: Pod, found: DrainDecision) -> DrainDecision:
    over = found.behaviour == "WaitCompleted" and pod.finished and not pod.metadata.deleting
    return DrainDecision("Skip", why="completed") if over else found


def _leaves(pod: Pod, found: DrainDecision) -> bool:
    return found.behaviour == "Drain" and pod.metadata.deleting


# ---- messages ----------------------------------------------------------------------------------------------------


def message(plan: DrainPlan, refusals: Sequence[EvictionRefusal]) -> str:
    """Return one line per wait. The same facts always give the same text, so that waiting writes nothing."""
    refused = {(pod.metadata.namespace, pod.metadata.name) for pod, _ in refusals}
    granted = [pod for pod in plan.evict if (pod.metadata.namespace, pod.metadata.name) not in refused]
    lines = []
    if plan.leaving or granted:
        lines.append(
            f"* {listed([*plan.leaving, *granted])}: deletionTimestamp set, but still not removed from the Node"
        )
    lines += _refusals(refusals)
    if plan.complete:
        lines.append(f"* {listed(plan.complete)}: waiting for completion, not evicted")
    if plan.evict_later:
        lines.append(f"After these are deleted, evicts {listed(plan.evict_later)}")
    if plan.complete_later:
        lines.append(f"After these are deleted, waits for completion of {listed(plan.complete_later)}")
    return "\n".join(lines)


def _refusals(refusals: Sequence[EvictionRefusal]) -> list[str]:
    by_reason: dict[str, list[Pod]] = {}
    for pod, why in sorted(refusals, key=lambda refusal: (refusal.why, _name(refusal.pod))):
        by_reason.setdefault(why, []).append(pod)
    shown = [f"* {listed(pods)}: {why}" for why, pods in by_reason.items()]
    if len(shown) <= _REFUSALS_SHOWN:
        return shown
    return [*shown[:_REFUSALS_SHOWN], f"* {len(shown) - _REFUSALS_SHOWN} more reasons why Pods cannot be evicted"]


def listed(pods: Sequence[Pod]) -> str:
    """Return a list such as `Pods default/a, default/b, default/c, ... (2 more)`."""
    found = sorted(_name(pod) for pod in pods)
    text = ("Pod " if len(found) == 1 else "Pods ") + ", ".join(found[:_NAMES_SHOWN])
    return text if len(found) <= _NAMES_SHOWN else f"{text}, ... ({len(found) - _NAMES_SHOWN} more)"


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
