"""Configuration of a host that stays: from its current plan to the desired plan, one step at a time.

A host without a plan gets one as soon as its tier may begin. Minor files are delivered at once. Every other change
waits until earlier tiers are done, few hosts of its tier are out of service, the quorum is safe, and the node is
drained. A host that is out of service already gets a newer plan without waiting.

The planner has a node drained before it restarts, if the user wants that. The request is the drain options as JSON; the
answer repeats it byte for byte. The uncordon request repeats it too, when the host is healthy again.
"""

from __future__ import annotations

import msgspec

from remuda.kube import clock
from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner import progress
from remuda.providers.controlplane.planner.decision import (
    Deliver,
    HostStatus,
    Phase,
    RequestDrain,
    RequestUncordon,
    RunAgain,
    Tier,
)
from remuda.providers.controlplane.planner.election import unready
from remuda.providers.controlplane.planner.observation import ObservedHost, Roles
from remuda.providers.controlplane.planner.rollout_order import RolloutOrder
from remuda.providers.controlplane.planner.run import Run
from remuda.providers.controlplane.render import Change
from remuda.providers.shared.types.configuration import DrainOptions, UpgradeStrategy


def configure(run: Run, order: RolloutOrder, host: ObservedHost, tier: Tier) -> HostStatus:
    if host.failed:
        wait = _wait(
            host,
            "MachineFailed",
            f"has failed: {host.failed}",
            "delete the Machine to replace it; no other machine waits for it",
        )
        return HostStatus(phase="failing", tier=tier, wait=wait)
    if not host.planned:
        return _begin(run, order, host, tier)
    desired = host.report.plan if run.frozen else run.desired(host)
    change = run.compare(host.report.plan, desired)
    if change == "none":
        return _carry_on(run, host, tier)
    if change not in progress.RESTARTING and progress.is_failing(host) and _may_restart(run, host):
        change = run.outstanding(host)  # the new plan repeats the failed work
    blocked = _against_change(run, order, host, tier, change)
    if blocked is not None:
        return blocked
    run.acts.append(Deliver(host.name, desired, run.explain(host, desired)))
    if change in progress.RESTARTING:
        # The host counts as stopped for the rest of this decision, so that no second voter restarts with it.
        run.guard.disturb(host)
        order.take(host, tier)
    return _status(run, "configuring", tier, host, "PlanDelivered", "waiting for plan to be applied", since=run.now)


# ---- the first plan


def _begin(run: Run, order: RolloutOrder, host: ObservedHost, tier: Tier) -> HostStatus:
    if why := unready(host):
        wait = (
            host.waits[0]
            if host.waits
            else _wait(host, "WaitingForHost", why, "the planner then gives it its first plan", agent=False)
        )
        return HostStatus(phase="waiting", tier=tier, wait=wait)
    if (missing := order.against_beginning(host, tier)) is not None:
        return _status(run, "waiting", tier, host, "WaitingForCluster", missing, since=host.connected_since)
    if tier == "etcd" and (held := run.changes.against_joining(host)) is not None:
        return HostStatus(phase="waiting", tier=tier, wait=held)
    if run.frozen:
        return _status(
            run,
            "waiting",
            tier,
            host,
            "WaitingForCluster",
            "no plan is written while the cluster itself waits",
            since=host.connected_since,
        )
    # From here on the host may join etcd at any moment, so no other host may join or leave in this decision.
    run.acts.append(Deliver(host.name, run.desired(host), "first plan"))
    if host.roles.etcd:
        run.changes.begin(host)
    missing = "waiting for agent to check in and apply initial plan"
    return _status(run, "configuring", tier, host, "PlanDelivered", missing, since=run.now)


# ---- a change


def _against_change(run: Run, order: RolloutOrder, host: ObservedHost, tier: Tier, change: Change) -> HostStatus | None:
    if (status := _against_joining_again(run, host, tier)) is not None:
        return status
    if change == "minor":
        return None
    out = is_drain_over(host) or run.is_out_of_service(host)
    missing = None
    if not out and not host.drain.requested:
        missing = order.against(host, tier)
    elif tier == "worker":  # it never runs a newer version than a server, whatever state it is in
        missing = order.against_overtaking(tier)
    if missing is not None:
        return _status(run, "waiting", tier, host, "WaitingForTurn", missing, up_to_date=False)
    if change not in progress.RESTARTING:
        return None
    if (held := _against_stopping(run, host)) is not None:
        return HostStatus(phase="waiting", tier=tier, wait=held)
    return None if out else _drain(run, order, host, tier, change)


def _against_stopping(run: Run, host: ObservedHost) -> Wait | None:
    """Return why etcd forbids restarting the host; None if it may restart. A host that is out of service loses nothing
    by a restart, but a voter that answers the other members is in service."""
    if not host.roles.etcd:
        return None
    wait = run.guard.against_stopping(host, joining=run.changes.may_vote(host))
    if wait is None and run.membership.votes(host) and (other := run.changes.under_way(but=host)) is not None:
        wait = _wait(host, "WaitingForEtcd", f"is not restarted while {other} is joining or leaving etcd", agent=False)
    return run.hold(wait) if wait is not None else None


def _against_joining_again(run: Run, host: ObservedHost, tier: Tier) -> HostStatus | None:
    """Return why a host that failed to join etcd may not retry yet: it may when no other host is joining."""
    if tier != "etcd" or run.membership.of(host) is not None:
        return None
    if progress.was_ever_applied(host) and not run.membership.views:
        return None  # the members are unknown: it may be one
    if run.is_unanswered(host):  # a newer plan would only make the others wait again
        missing = "waiting for agent to check in and apply initial plan; its agent does not answer"
        return _status(run, "configuring", tier, host, "WaitingForPlan", missing, since=host.report.delivered)
    wait = run.changes.against_joining(host)
    if wait is not None:
        return HostStatus(phase="failing" if progress.is_failing(host) else "waiting", tier=tier, wait=wait)
    run.changes.begin(host)
    return None


def _drain(run: Run, order: RolloutOrder, host: ObservedHost, tier: Tier, change: Change) -> HostStatus | None:
    """Return the status of a host whose node has to be drained first; None if there is no need to, or it is done."""
    options = drain_options_for(run.cluster.spec.upgrade_strategy, host.roles)
    if change != "drain" or not is_drain_wanted(options) or len(run.observed.hosts) < 2:
        return None
    if not run.observed.initialized:
        return None  # no Pod can exist yet
    if not run.observed.reachable:
        if run.is_out_of_service(host):
            return None  # the change may be what brings the API back
        why = run.observed.unreachable or "the API of the cluster does not answer"
        return _status(run, "draining", tier, host, "ClusterUnreachable", f"cannot drain its node: {why}")
    if host.node is None:
        return None
    request = drain_request(options)
    if host.drain.requested != request:
        run.acts.append(RequestDrain(host.name, request))
    run.guard.disturb(host)
    order.take(host, tier)
    missing = f"error draining machine {host.name}: {host.drain.error}" if host.drain.error else "draining node"
    return _status(run, "draining", tier, host, "Draining", missing, then="its services restart then")


# ---- no change


def _carry_on(run: Run, host: ObservedHost, tier: Tier) -> HostStatus:
    if progress.is_failing(host):
        return _retry(run, host, tier)
    if not progress.is_applied(host):
        first = not progress.was_ever_applied(host)
        missing = "waiting for agent to check in and apply initial plan" if first else "waiting for plan to be applied"
        if run.is_unanswered(host):
            missing += "; its agent does not answer"
        return _status(run, "configuring", tier, host, "WaitingForPlan", missing, since=host.report.delivered)
    if unhealthy := progress.unhealthy_probes(run.observed, host):
        return _for_unit(run, tier, host, "WaitingForProbes", f"waiting for probes: {', '.join(unhealthy)}")
    if host.roles.etcd and not _votes(run, host):
        return _for_unit(run, tier, host, "WaitingForEtcd", "waiting for etcd to list it as a voting member")
    if run.observed.reachable and progress.runs_version(run.cluster, host) is False:
        return _for_unit(run, tier, host, "WaitingForKubelet", "waiting for kubelet to update")
    if host.drain.requested and not run.frozen:
        if host.drain.uncordon != host.drain.requested:
            run.acts.append(RequestUncordon(host.name, host.drain.requested))
        return _status(run, "uncordoning", tier, host, "Uncordoning", "waiting for uncordon to finish", up_to_date=True)
    return HostStatus(phase="ready", tier=tier, up_to_date=True)


def _for_unit(run: Run, tier: Tier, host: ObservedHost, reason: str, missing: str) -> HostStatus:
    """Return a wait for something that needs a running unit. If the unit does not run, the wait names its error."""
    trouble = progress.unit_trouble(run.cluster, host)
    return _status(run, "configuring", tier, host, reason, f"{missing}; {trouble}" if trouble else missing)


def _votes(run: Run, host: ObservedHost) -> bool:
    return run.membership.votes(host) and not (host.node is not None and host.node.voter is False)


def _retry(run: Run, host: ObservedHost, tier: Tier) -> HostStatus:
    attempt = max(host.report.failures, 1)
    failed = (
        f"failure while applying plan (attempt {attempt}): {host.report.failed_message or 'its agent reports no cause'}"
    )
    again = progress.next_attempt(host, run.now)
    then = f"the planner retries at {clock.rfc3339(again)}"
    if run.now >= again:
        held = _against_joining_again(run, host, tier) or None
        stopping = _against_stopping(run, host) if held is None and _may_restart(run, host) else None
        if held is None and stopping is None:
            run.acts.append(RunAgain(host.name, attempt + 1))
            if _may_restart(run, host):
                run.guard.disturb(host)
        elif stopping is not None:
            then = f"the planner retries when the quorum allows it: {stopping.missing}"
        elif held is not None and held.wait is not None:
            then = f"the planner retries when it may join: {held.wait.missing}"
    else:
        run.look_at(again)
    return _status(run, "failing", tier, host, "PlanFailed", failed, since=host.report.delivered, then=then)


def _may_restart(run: Run, host: ObservedHost) -> bool:
    return run.outstanding(host) in progress.RESTARTING


# ---- words


def _status(
    run: Run,
    phase: Phase,
    tier: Tier,
    host: ObservedHost,
    reason: str,
    missing: str,
    *,
    since: float | None = None,
    then: str = "",
    up_to_date: bool = False,
) -> HostStatus:
    wait = _wait(host, reason, missing, then, since=since if since is not None else _since(run, host))
    return HostStatus(phase=phase, tier=tier, wait=wait, up_to_date=up_to_date)


def _since(run: Run, host: ObservedHost) -> float:
    """Return when a state began that leaves no trace of its own: after the last plan was applied, and not while the
    Machine was still reconciled. When the plan was delivered says nothing of it: that may be days ago."""
    if host.unsettled_since is None:
        return run.now
    return min(max(host.unsettled_since, host.report.last_apply or 0.0), run.now)


def _wait(
    host: ObservedHost, reason: str, missing: str, then: str = "", *, since: float | None = None, agent: bool = True
) -> Wait:
    log = f"remuda machine logs {host.name} -n {host.namespace}" + (" --agent" if agent else "")
    return Wait(reason=reason, on=str(host), missing=missing, since=since, then=then, log=log)


# ---- drain requests ----------------------------------------------------------------------------------------------


def drain_options_for(strategy: UpgradeStrategy, roles: Roles) -> DrainOptions:
    return strategy.control_plane_drain_options if roles.server else strategy.worker_drain_options


def drain_request(options: DrainOptions) -> str:
    """Return the request: sorted keys, no spaces, and zero values for unset fields that are always present."""
    written: dict[str, object] = {
        "deleteEmptyDirData": options.delete_empty_dir_data,
        "disableEviction": options.disable_eviction,
        "enabled": options.enabled,
        "force": options.force,
        "gracePeriod": options.grace_period,
        "skipWaitForDeleteTimeoutSeconds": options.skip_wait_for_delete_timeout_seconds,
        "timeout": options.timeout,
    }
    if options.ignore_daemon_sets is not None:
        written["ignoreDaemonSets"] = options.ignore_daemon_sets
    if options.ignore_errors:
        written["ignoreErrors"] = True
    for name, hooks in (("preDrainHooks", options.pre_drain_hooks), ("postDrainHooks", options.post_drain_hooks)):
        if hooks:
            written[name] = [{"annotation": hook.annotation} for hook in hooks]
    return msgspec.json.encode(written, order="sorted").decode()


def is_drain_wanted(options: DrainOptions) -> bool:
    return options.enabled or bool(options.pre_drain_hooks) or bool(options.post_drain_hooks)


def is_drain_over(host: ObservedHost) -> bool:
    return bool(host.drain.requested) and host.drain.done == host.drain.requested
