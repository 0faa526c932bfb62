"""Removal of a host with etcd: drain → move the init node mark → leave etcd → stop its services → release its Machine.

The removal can finish from every state: a host that never had a plan is released at once, a host that does not answer
is released two minutes after it ceased to be a member, and the user can force the removal
(`rke.cattle.io/etcd-force-remove`).
"""

from __future__ import annotations

from remuda.kube.wait import Wait
from remuda.providers.controlplane.planner import membership, progress
from remuda.providers.controlplane.planner.decision import Deliver, Expel, Forget, Hold, HostStatus, Leave, Release
from remuda.providers.controlplane.planner.membership import Membership
from remuda.providers.controlplane.planner.observation import ObservedHost
from remuda.providers.controlplane.planner.run import Run

_FORCE = "or set the annotation rke.cattle.io/etcd-force-remove on its RKEBootstrap, if its data may be lost"


def remove_deleted_hosts(run: Run) -> None:
    """Remove the hosts that are being deleted, those with an unhealthy etcd member first: they are lost already."""
    for host in sorted((h for h in run.observed.hosts if h.deleting), key=lambda h: _place(run, h)):
        wait = _next(run, host)
        run.statuses[host.name] = HostStatus(phase="leaving", wait=wait)


def hold(run: Run) -> None:
    """Hold the deletion of every host with etcd, from the beginning, until the planner releases it."""
    for host in run.observed.hosts:
        if host.roles.etcd and not host.held and not host.deleting:
            run.acts.append(Hold(host.name))


def expel(run: Run) -> None:
    """Expel members of etcd that belong to no Machine, one at a time."""
    for stray in run.changes.strays():
        name = membership.name_of(stray)
        on, node = f"etcd of {run.cluster.namespace}/{run.cluster.name}", membership.node_of(stray)
        if run.observed.reachable and run.changes.may_expel(stray):
            run.acts.append(Expel(node=node, member=name))
            then = "it is removed"
        else:
            then = (
                f"delete Node {node} in the cluster if it is gone for good" if node else "the cluster removes it itself"
            )
        run.hold(Wait(reason="StrayEtcdMember", on=on, missing=f"member {name} belongs to no Machine", then=then))
        return  # one at a time


def forget(run: Run) -> None:
    """Delete Nodes whose Machines are gone. A Node that is or may be a member of etcd is expelled instead, with more
    care."""
    members = {membership.node_of(member) for member in run.membership.members}
    for orphan in run.observed.orphans:
        if orphan.node not in members and (run.membership.known or not orphan.etcd):
            run.acts.append(Forget(orphan.node))


def _place(run: Run, host: ObservedHost) -> tuple[bool, float, str]:
    member = run.membership.of(host)
    return member is not None and run.guard.is_well(member), host.deleting_since or 0.0, host.name


def _next(run: Run, host: ObservedHost) -> Wait | None:
    if not host.roles.etcd:
        return _release(run, host, "it has no etcd role")
    if host.force_remove:
        return _release(run, host, "the user forced its removal")
    if not host.planned:
        return _release(run, host, "it never had a plan")
    retired = host.name in run.retired
    if retired and not host.held:
        return None  # all that is ours to do is done
    if not retired and not host.held:
        run.acts.append(Hold(host.name))
    # The drain comes first: a server whose etcd member has left loses its API server, which its kubelet needs
    # (rancher/cluster-api-provider-rke2#431).
    if not retired and not host.drained:
        return _wait(
            host,
            "WaitingForDrain",
            "Cluster API has not drained its Node yet",
            "the planner then asks its etcd member to leave",
        )
    return _leave(run, host) or _stop(run, host)


def _leave(run: Run, host: ObservedHost) -> Wait | None:
    """Return what the host waits for before it has left etcd; None if it is not a member."""
    others = membership.gather(run.observed.hosts, ignored={*run.retired, host.name})
    seen = others if others.views else run.membership  # its own report counts only if no other host reports
    member = seen.of(host)
    if member is None:
        return _against_stopping_a_joiner(run, host, others)
    if not run.observed.initialized and len(seen.voters) <= 1 and not others.views:
        return None  # it had initialized a cluster that is not in use yet
    if host.init and len(seen.voters) > 1:
        return _wait(
            host,
            "WaitingForInitNode",
            "is the init node, and no other host can take over yet",
            "the planner then asks its etcd member to leave",
        )
    if host.node is not None and host.node.left:
        return _wait(
            host,
            "WaitingForEtcdMembers",
            "has left etcd, but not all members report that yet",
            "the planner then stops its services",
        )
    if host.node is not None and host.node.leaving:
        return _wait(
            host,
            "LeavingEtcd",
            "its etcd member was asked to leave and has not left yet",
            "the planner then stops its services",
        )
    if (wait := run.changes.against_leaving(host, seen)) is not None:
        return run.hold(wait)
    if not run.observed.reachable:
        why = run.observed.unreachable or "the API of the cluster does not answer"
        return run.hold(_wait(host, "ClusterUnreachable", f"cannot ask its etcd member to leave: {why}", _FORCE))
    if host.node is None:
        if member.learner:
            return None  # it never voted, and the cluster forgets it
        return run.hold(
            _wait(
                host,
                "NodeMissing",
                "is a member of etcd, but has no Node through which it can be asked to leave",
                _FORCE,
            )
        )
    run.changes.begin(host)
    run.acts.append(Leave(host.name))
    return _wait(host, "LeavingEtcd", "its etcd member is asked to leave", "the planner then stops its services")


def _against_stopping_a_joiner(run: Run, host: ObservedHost, others: Membership) -> Wait | None:
    """Return why a host that is not listed as a member may not be stopped yet: it may become a member at any moment,
    and stopping it then could cost the majority."""
    unknown = not others.views and run.observed.initialized and progress.was_ever_applied(host)
    if unknown and host.name not in run.retired and not (host.node is not None and host.node.left):
        return run.hold(_wait(host, "EtcdMembersUnknown", "no host reports whether it is a member of etcd", _FORCE))
    if not others.views or (host.node is not None and host.node.left):
        return None
    if host.name not in run.retired and (other := run.changes.under_way(but=host)) is not None:
        return _wait(
            host,
            "WaitingForEtcd",
            f"{other} is joining or leaving etcd: one at a time",
            "the planner then stops its services",
        )
    may_vote = run.changes.may_become_member if host.name in run.retired else run.changes.may_vote
    wait = run.guard.by(others).against_stopping(host, joining=True) if may_vote(host) else None
    if wait is None:
        return None
    run.look_at(run.changes.join_deadline(host))
    return run.hold(wait)


def _stop(run: Run, host: ObservedHost) -> Wait | None:
    retirement = run.retirements[host.name]
    if host.name not in run.retired:
        if not (host.node is not None and host.node.left):
            run.changes.begin(host)  # until it has stopped it might still join
        run.acts.append(Deliver(host.name, retirement, "it leaves the cluster: stop its services"))
        return _wait(host, "Stopping", "its services are being stopped", "its Machine is deleted then")
    if progress.is_applied(host):
        return _release(run, host, "it has left etcd and its services have stopped")
    end = (host.report.delivered or 0.0) + progress.UNANSWERED
    if run.now >= end:
        return _release(run, host, "it has left etcd, and its agent does not answer")
    run.look_at(end)
    return _wait(
        host,
        "Stopping",
        "waiting for its agent to stop its services",
        "its Machine is deleted then, or if the agent does not answer",
    )


def _release(run: Run, host: ObservedHost, why: str) -> Wait | None:
    if host.held:
        run.acts.append(Release(host.name, why))
    return None


def _wait(host: ObservedHost, reason: str, missing: str, then: str) -> Wait:
    return Wait(reason=reason, on=str(host), missing=missing, since=host.deleting_since, then=then)
