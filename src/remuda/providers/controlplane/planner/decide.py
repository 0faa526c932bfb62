"""Decide what to do about a cluster now: the state machine that docs/planner.md shows as a table. Pure: the same
observation gives the same decision, and a cluster in its desired state gives no act and no requeue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.kube.wait import Wait
from remuda.providers.controlplane import render as rendering
from remuda.providers.controlplane.planner import (
    election,
    etcd_removal,
    host_configuration,
    progress,
    quorum,
    rollout_order,
)
from remuda.providers.controlplane.planner.decision import Decision, HostStatus, Mark, Phase, Release, Tier
from remuda.providers.controlplane.planner.observation import Observation, ObservedHost
from remuda.providers.controlplane.planner.rollout_order import RolloutOrder
from remuda.providers.controlplane.planner.run import Compare, Explain, PlanFunctions, Render, Retire, Run
from remuda.providers.controlplane.render import consequence
from remuda.providers.shared import names

_MOST_NAMES = 3
_VERBS: tuple[tuple[Phase, str], ...] = (
    ("uncordoning", "uncordoning {} node(s) {}"),
    ("draining", "draining {} node(s) {}"),
    ("configuring", "configuring {} node(s) {}"),
    ("failing", "failing {} machine(s) {}"),
    ("waiting", "non-ready {} machine(s) {}"),
)


def decide(
    observed: Observation,
    *,
    render: Render = rendering.render,
    compare: Compare = rendering.compare,
    retire: Retire = rendering.retire,
    explain: Explain = consequence.why,
) -> Decision:
    if observed.deleting:
        return _release_all(observed)
    if observed.paused:
        return _nothing(
            observed,
            _wait(observed, "Paused", f"is paused: {observed.paused}", then="nothing changes until it is resumed"),
        )
    run = Run(observed, PlanFunctions(render, compare, retire, explain))
    # Before everything else: a Machine that is deleted without the hook takes its etcd member along.
    etcd_removal.hold(run)
    if _is_lost(run):
        return _lost(run)
    lost = _lost_quorum(run)
    etcd_removal.remove_deleted_hosts(run)
    if lost is None:
        etcd_removal.expel(run)
        etcd_removal.forget(run)
    _prepare(run)
    _place_mark(run, lost)
    order = _configure(run)
    return _answer(run, order, lost)


def _release_all(observed: Observation) -> Decision:
    """Release all Machines: the whole cluster is deleted, so no member has to leave etcd first."""
    acts = [Release(host.name, "the whole cluster is being deleted") for host in observed.hosts if host.held]
    waits = [_wait(observed, "Deleting", "is being deleted", then="its machines are released")]
    statuses = {host.name: HostStatus(phase="leaving") for host in observed.hosts}
    return Decision(acts=acts, hosts=statuses, waits=waits, stage="deleting", initialized=observed.initialized)


def _nothing(observed: Observation, wait: Wait) -> Decision:
    initialized, provisioned = observed.initialized, election.roles_are_held(observed)
    return Decision(
        waits=[wait], stage=wait.missing, initialized=initialized, bootstrapped=initialized, provisioned=provisioned
    )


# ---- etcd is lost


def _is_lost(run: Run) -> bool:
    """Return whether the cluster was initialized and no host has its data any more."""
    return run.observed.initialized and not any(
        host.roles.etcd and host.name not in run.retired and progress.was_ever_applied(host)
        for host in run.observed.hosts
    )


def _lost(run: Run) -> Decision:
    missing = "no machine has the cluster's data any more: all etcd machines were deleted or are new"
    wait = _wait(
        run.observed, "EtcdLost", missing, then="restore a snapshot of etcd; until then the planner does nothing"
    )
    etcd_removal.remove_deleted_hosts(run)
    for host in run.observed.hosts:
        if not host.deleting:
            run.statuses[host.name] = HostStatus(phase="waiting", tier=rollout_order.tier_of(host, None), wait=wait)
    return Decision(
        acts=run.acts,
        hosts=run.statuses,
        waits=[wait],
        held=[wait],
        stage=missing,
        initialized=True,
        bootstrapped=True,
        provisioned=election.roles_are_held(run.observed),
        lost=wait,
        look_again=run.look_again,
    )


def _lost_quorum(run: Run) -> Wait | None:
    """Return the wait for a lost quorum, if it is lost. Plans stay unchanged then, because changing members or
    restarting a live one could make it worse. Failed plans are still retried, because that may bring a member back."""
    found = quorum.loss(run.observed, run.retired)
    if found.look_at is not None:
        run.look_at(found.look_at)
    if found.wait is not None:
        run.waits.append(run.hold(found.wait))
    return found.wait


# ---- before the hosts are handled one by one


def _prepare(run: Run) -> None:
    """Collect the problems that freeze all plans."""
    run.waits += run.observed.problems
    if not run.observed.infrastructure_ready:
        run.waits.append(_wait(run.observed, "WaitingForInfrastructure", "waiting for infrastructure ready"))
    run.frozen = bool(run.waits)


def _place_mark(run: Run, lost: Wait | None) -> None:
    """Choose the host that begins, or has begun, the cluster. A mark that moves is written before plans are rendered
    with it."""
    observed = run.observed
    if lost is not None:
        run.init = next((host for host in observed.hosts if host.init and not host.deleting), None)
        return
    without = ""
    if not election.is_begun(observed, run.membership):
        gathered = election.initial_machines_ready(observed)
        if gathered.until is not None:
            run.look_at(gathered.until)
        if gathered.wait is not None:
            run.waits.append(gathered.wait)
            run.frozen = True
            return
        without = f"; it begins without {gathered.missing}" if gathered.missing else ""
    result = election.elect(observed, run.membership)
    run.init = result.chosen
    if result.chosen is None:
        run.waits.append(election.wait_for_candidate(observed, run.membership, result))
    elif result.moves:
        run.acts.append(Mark(result.chosen.name, result.why + without))
        run.frozen = True


# ---- one by one


def _configure(run: Run) -> RolloutOrder:
    by_tier: dict[Tier, list[ObservedHost]] = {tier: [] for tier in rollout_order.ORDER}
    for host in run.observed.hosts:
        tier = rollout_order.tier_of(host, run.init)
        if host.deleting:
            continue
        if tier is None:
            run.statuses[host.name] = HostStatus(phase="waiting", wait=_no_role(host))
        else:
            by_tier[tier].append(host)
    order = RolloutOrder(run, by_tier)
    for tier, hosts in by_tier.items():
        ordered = sorted(hosts, key=lambda host: _place(run.observed, host))
        statuses = [(host, host_configuration.configure(run, order, host, tier)) for host in ordered]
        for host, status in statuses:
            run.statuses[host.name] = status
            order.record(host, status)
    return order


def _no_role(host: ObservedHost) -> Wait:
    labels = ", ".join((names.ETCD_ROLE, names.CONTROL_PLANE_ROLE, names.WORKER_ROLE))
    missing = f'has no role: its owner must set one or more of the labels {labels}, with the value "true"'
    return Wait(reason="NoRole", on=str(host), missing=missing, then="it gets no plan until then")


def _place(observed: Observation, host: ObservedHost) -> tuple[bool, float, str]:
    """Return the sort key of a host: hosts that are out of service first, then the oldest."""
    return not host.planned or progress.is_settled(observed, host), host.created, host.name


def _answer(run: Run, order: RolloutOrder, lost: Wait | None) -> Decision:
    observed = run.observed
    rank = {tier: place for place, tier in enumerate(rollout_order.ORDER)}
    by_rank = sorted(
        run.statuses.items(), key=lambda item: (rank.get(item[1].tier or "worker", 0), item[1].tier is None, item[0])
    )
    waits = [*run.waits, *(status.wait for _, status in by_rank if status.wait is not None)]
    initialized = observed.initialized or order.control_plane_is_there
    return Decision(
        acts=run.acts,
        hosts=run.statuses,
        waits=waits,
        held=run.held,
        stage=_stage(run.statuses, waits),
        initialized=initialized,
        bootstrapped=initialized or any(run.membership.votes(host) for host in observed.hosts),
        provisioned=election.roles_are_held(observed),
        lost=lost,
        look_again=run.look_again,
    )


def _wait(observed: Observation, reason: str, missing: str, *, then: str = "") -> Wait:
    cluster = observed.cluster
    on = f"RKEControlPlane {cluster.namespace}/{cluster.name}"
    return Wait(reason=reason, on=on, missing=missing, since=cluster.created, then=then)


# ---- the summary --------------------------------------------------------------------------------------------------


def _stage(hosts: Mapping[str, HostStatus], waits: Sequence[Wait]) -> str:
    """Return a one-line summary of the current work, in the wording users know: `configuring etcd node(s) a,b: waiting
    for probes: etcd`. It covers the first tier that has work in progress, with details only if that is a single
    machine."""
    for tier in rollout_order.ORDER:
        parts = [_stage_of_tier(tier, words, phase, hosts) for phase, words in _VERBS]
        if any(parts):
            return ", ".join(filter(None, parts))
    leaving = sorted(name for name, status in hosts.items() if status.phase == "leaving")
    if leaving:
        return f"removing node(s) {_first_names(leaving)}"
    return waits[0].missing if waits else ""


def _stage_of_tier(tier: str, words: str, phase: Phase, hosts: Mapping[str, HostStatus]) -> str:
    found = sorted(name for name, status in hosts.items() if status.tier == tier and status.phase == phase)
    if not found:
        return ""
    wait = hosts[found[0]].wait
    details = f": {wait.missing}" if len(found) == 1 and wait is not None else ""
    return words.format(tier, _first_names(found)) + details


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ",".join(names[:_MOST_NAMES]) + more
