"""Drain nodes for the planner, by annotations of the plan Secret, so that other controllers can take part.

    drain-options = R     the planner asks; R is a DrainOptions as JSON, and every value below is R again, byte for byte
    pre-drain = R         hooks may begin; each answers with R in an annotation of its own
    drain-done = R        the node is cordoned, and empty if that was wanted: the planner may go on
    uncordon = R          the planner has finished
    post-drain = R        hooks again; then the node accepts Pods, and all of these annotations are deleted

The annotation drain-error reports what blocks the drain. Pods are not watched, so the drainer requeues to poll them.

The Pods to evict are chosen by kubectl's rules and the cluster's options. They are classified (of a DaemonSet, static,
to be left alone by its label) as for the deletion of a Machine (`capi.machine.drain_rules`). If one Pod may not be
evicted, no Pod is touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from remuda.capi.cluster_index import index_by_cluster, members
from remuda.capi.machine import drain_rules, drain_stages
from remuda.capi.machine.drain_rules import DrainFacts, listed
from remuda.capi.machine.workload import NODE, POD, Node, Pod
from remuda.capi.pause import is_paused
from remuda.capi.types import CLUSTER, MACHINE, Machine
from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.core import SECRETS, Secret
from remuda.kube.errors import NotFound, StatusError
from remuda.kube.objects import Key
from remuda.providers.controlplane import hosts
from remuda.providers.controlplane.plan_secrets import (
    DRAIN_DONE,
    DRAIN_ERROR,
    DRAIN_REQUEST,
    POST_DRAIN,
    PRE_DRAIN,
    UNCORDON_REQUEST,
)
from remuda.providers.shared import names, secrets
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP
from remuda.providers.shared.types.configuration import DrainHook, DrainOptions
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue
from remuda.runtime.remote import PROVIDER_ID, Connection, RemoteClusters
from remuda.runtime.steps import step

NAME = "rkedrain"
CORDON = step("rkedrain.cordon", "cordons a node before its services restart")
EVICT = step("rkedrain.evict", "evicts a Pod from a node before its services restart")
UNCORDON = step("rkedrain.uncordon", "uncordons a node")
ANNOTATE = step("rkedrain.tell", "writes the progress of a drain into the plan Secret")

_CONCURRENCY = 20
_TIMEOUT_SECONDS = 600  # if the options set none
_OURS = (DRAIN_REQUEST, DRAIN_DONE, UNCORDON_REQUEST, PRE_DRAIN, POST_DRAIN, DRAIN_ERROR)


class DrainSettings(msgspec.Struct, frozen=True, kw_only=True):
    retry_seconds: float = 5.0  # between two checks of Pods
    eviction_seconds: float = 10.0  # for all evictions of one pass


class _Work(NamedTuple):
    """Pass over one node."""

    secret: Secret
    machine: Machine
    request: str
    options: DrainOptions
    connection: Connection

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.secret.metadata.annotations


class Drainer:
    def __init__(self, manager: Manager, remote: RemoteClusters, settings: DrainSettings) -> None:
        self._client = manager.client
        self._events = manager.events
        self._caches = manager.caches
        self._remote = remote
        self._settings = settings
        self._bootstraps = manager.caches.of(RKE_BOOTSTRAP)
        self._machines = manager.caches.of(MACHINE)
        self._clusters = manager.caches.of(CLUSTER)
        self._secrets = secrets.informer(manager.caches)
        self._began: dict[Key, tuple[str, float]] = {}  # by RKEBootstrap: for which request, since when
        index_by_cluster(manager.caches, MACHINE)
        self._controller = manager.controller(NAME, RKE_BOOTSTRAP, self.reconcile, concurrency=_CONCURRENCY)
        self._controller.watch(self._secrets, _bootstrap_of, "plan", facts=_facts)
        remote.on_change(self._on_remote_change)

    def _on_remote_change(self, cluster: Key, node: object) -> None:
        """Handle a cluster that connects or disconnects; Nodes are checked when it is their turn."""
        if node is not None:
            return
        for machine in members(self._caches, MACHINE, cluster):
            reference = machine.spec.bootstrap.config_ref
            if hosts.is_ours(machine) and reference is not None:
                self._controller.enqueue(Key(machine.metadata.namespace, reference.name))

    async def reconcile(self, key: Key) -> Outcome:
        work = self._look(key)
        if work is None:
            self._began.pop(key, None)
            return DONE
        cluster = self._clusters.get(key.namespace, work.machine.spec.cluster_name)
        if is_paused(cluster, work.machine.metadata):
            return Blocked(
                "Paused",
                f"Machine {work.machine.key}",
                "the drain continues when the Machine and its Cluster are resumed",
            )
        if work.annotations.get(UNCORDON_REQUEST) == work.request:
            return await self._uncordon(work)
        if work.annotations.get(DRAIN_DONE) == work.request:
            return DONE
        try:
            return await self._drain(key, work)
        except (StatusError, OSError, TimeoutError) as error:
            await self._annotate(work, {DRAIN_ERROR: str(error) or type(error).__name__})
            raise

    def _look(self, key: Key) -> _Work | None:
        bootstrap = self._bootstraps.get(*key)
        secret = self._secrets.get(key.namespace, names.plan_secret(key.name))
        if bootstrap is None or secret is None or bootstrap.metadata.deleting:
            return None
        request = secret.metadata.annotations.get(DRAIN_REQUEST, "")
        owner = bootstrap.metadata.owner(MACHINE.name, MACHINE.group)
        machine = self._machines.get(key.namespace, owner.name) if owner is not None else None
        if not request or machine is None or machine.metadata.deleting:
            return None
        try:
            options = msgspec.json.decode(request, type=DrainOptions)
        except msgspec.MsgspecError:
            return None
        cluster = Key(key.namespace, machine.spec.cluster_name)
        return _Work(secret, machine, request, options, self._remote.look(cluster))

    # ---- before

    async def _drain(self, key: Key, work: _Work) -> Outcome:
        client = work.connection.client
        if client is None:
            cluster = f"Cluster {work.machine.metadata.namespace}/{work.machine.spec.cluster_name}"
            why = f"{cluster} does not answer: {work.connection.error}"
            await self._annotate(work, {DRAIN_ERROR: why})
            return Blocked("WaitingForConnection", cluster, why, self._settings.retry_seconds)
        node = await self._node(client, work)
        if node is not None:
            if not node.spec.unschedulable:
                async with CORDON:
                    await client.patch(NODE.target, "", node.metadata.name, {"spec": {"unschedulable": True}})
            if waiting := await self._hooks(work, PRE_DRAIN, work.options.pre_drain_hooks):
                return waiting
            if (
                work.options.enabled
                and self._has_other_machines(work.machine)
                and (why := await self._evict_all(key, client, node, work))
            ):
                await self._annotate(work, {DRAIN_ERROR: why})
                return Requeue(self._settings.retry_seconds, why)
        await self._annotate(work, {DRAIN_DONE: work.request, DRAIN_ERROR: None})
        self._began.pop(key, None)
        self._events.normal(work.machine, "Drained", "its node accepts no Pods until its new plan is applied")
        return DONE

    def _has_other_machines(self, machine: Machine) -> bool:
        """The only machine of a cluster is never emptied: its Pods would have nowhere to go."""
        cluster = Key(machine.metadata.namespace, machine.spec.cluster_name)
        return sum(hosts.is_ours(one) for one in members(self._caches, MACHINE, cluster)) > 1

    async def _evict_all(self, key: Key, client: Client, node: Node, work: _Work) -> str:
        """Evict the node's Pods and return what the drain waits for; empty when the node is empty."""
        pods: list[Pod] = await drain_stages.listed(client, POD, field_selector=f"spec.nodeName={node.metadata.name}")
        existing = await drain_stages.existing_daemon_sets(client, pods)
        found = plan_evacuation(pods, work.options, existing, now=clock.time(), unreachable=node.unreachable)
        if found.finished:
            return ""
        if found.forbidden:
            return found.forbidden
        gone, refusals = await self._evict(client, found.evict, work.options)
        ending = [*(pod for pod in found.evict if pod not in gone), *found.leaving]
        if not ending:
            return ""
        lines = [f"{listed([pod])}: {why}" for pod, why in refusals]
        if not lines:
            lines = [f"{listed(ending)}: still terminating"]
        return "; ".join([*lines[:5], *self._timeout_note(key, work)])

    def _timeout_note(self, key: Key, work: _Work) -> list[str]:
        request, began = self._began.setdefault(key, (work.request, clock.time()))
        if request != work.request:
            began = clock.time()
            self._began[key] = (work.request, began)
        limit = work.options.timeout or _TIMEOUT_SECONDS
        return [f"the drain exceeds its timeout of {limit} s"] if clock.time() - began > limit else []

    async def _evict(
        self, client: Client, pods: Sequence[Pod], options: DrainOptions
    ) -> tuple[list[Pod], list[tuple[Pod, str]]]:
        """Evict Pods; return those that do not exist any more, and those that were refused. Pods that do not fit into
        the time of this pass are evicted in the next one.
        """
        loop = asyncio.get_running_loop()
        gone: list[Pod] = []
        refusals: list[tuple[Pod, str]] = []
        until = loop.time() + self._settings.eviction_seconds
        grace = options.grace_period if options.grace_period >= 0 else None
        for pod in pods:
            why = "not evicted yet: too many Pods for one attempt"
            if loop.time() < until:
                try:
                    async with asyncio.timeout_at(until), EVICT:
                        why = await _evict_or_delete(client, pod, grace, by_force=options.disable_eviction)
                except drain_stages.PodGone:
                    gone.append(pod)
                    continue
                except TimeoutError:
                    why = "the eviction request timed out"
            if why:
                refusals.append((pod, why))
        return gone, refusals

    # ---- after

    async def _uncordon(self, work: _Work) -> Outcome:
        client = work.connection.client
        if client is None:
            why = f"the cluster does not answer: {work.connection.error}"
            return Blocked("WaitingForConnection", f"Machine {work.machine.key}", why, self._settings.retry_seconds)
        if waiting := await self._hooks(work, POST_DRAIN, work.options.post_drain_hooks):
            return waiting
        node = await self._node(client, work)
        if node is not None and node.spec.unschedulable:
            async with UNCORDON:
                await client.patch(NODE.target, "", node.metadata.name, {"spec": {"unschedulable": None}})
        answers = [hook.annotation for hook in (*work.options.pre_drain_hooks, *work.options.post_drain_hooks)]
        await self._annotate(work, dict.fromkeys((*_OURS, *filter(None, answers))))
        return DONE

    # ---- both

    async def _hooks(self, work: _Work, stage: str, hooks: Sequence[DrainHook]) -> Outcome | None:
        wanted = [hook.annotation for hook in hooks if hook.annotation]
        if not wanted:
            return None
        await self._annotate(work, {stage: work.request})
        missing = [name for name in wanted if work.annotations.get(name) != work.request]
        if not missing:
            return None
        why = f"waiting for drain hooks: set {', '.join(missing)} of Secret {work.secret.key} to the value of {stage}"
        return Blocked("WaitingForHook", f"Secret {work.secret.key}", why)

    async def _node(self, client: Client, work: _Work) -> Node | None:
        """As the cluster has it now."""
        nodes, name = work.connection.nodes, hosts.node_name(work.machine)
        same = (
            nodes.select(PROVIDER_ID, work.machine.spec.provider_id) if nodes and work.machine.spec.provider_id else []
        )
        if same:
            name = same[0].metadata.name
        try:
            return NODE.decode(await client.get(NODE.target, "", name))
        except NotFound:
            return None

    async def _annotate(self, work: _Work, notes: Mapping[str, str | None]) -> None:
        """Write annotations that differ."""
        present = self._secrets.get(*work.secret.key) or work.secret
        news = {name: value for name, value in notes.items() if present.metadata.annotations.get(name) != value}
        if news:
            patch = {"metadata": {"annotations": news, "resourceVersion": present.metadata.resource_version}}
            async with ANNOTATE:
                await self._client.patch(SECRETS, *present.key, patch)


async def _evict_or_delete(client: Client, pod: Pod, grace: int | None, *, by_force: bool) -> str:
    """Return why it was refused; empty if the Pod leaves. Raises PodGone if it does not exist any more."""
    if not by_force:
        return await drain_stages.evict_pod(client, pod, grace_seconds=grace)
    try:
        await client.delete(POD.target, *pod.key, uid=pod.metadata.uid, grace_period_seconds=grace)
    except NotFound:
        raise drain_stages.PodGone from None
    except StatusError as error:
        return drain_stages.refusal(error)
    return ""


def _bootstrap_of(secret: Secret) -> list[Key]:
    owner = secret.metadata.owner(RKE_BOOTSTRAP.name, RKE_BOOTSTRAP.group)
    return [Key(secret.metadata.namespace, owner.name)] if owner is not None and secret.type == names.PLAN_TYPE else []


def _facts(secret: Secret) -> object:
    return secret.metadata.annotations


# ---- which Pods to evict ------------------------------------------------------------------------------------------


class Evacuation(NamedTuple):
    evict: Sequence[Pod] = ()
    leaving: Sequence[Pod] = ()  # waited for
    forbidden: str = ""  # why no Pod may be evicted

    @property
    def finished(self) -> bool:
        return not (self.evict or self.leaving or self.forbidden)


def plan_evacuation(
    pods: Sequence[Pod], options: DrainOptions, daemon_sets: Collection[Key], *, now: float, unreachable: bool
) -> Evacuation:
    around = DrainFacts(now, unreachable, daemon_sets, namespace_labels={}, rules=())
    found = drain_rules.plan(pods, around)
    evict = [*found.evict, *found.evict_later]
    leaving = [
        pod for pod in (*found.leaving, *found.complete, *found.complete_later) if not _given_up(pod, options, now)
    ]
    return Evacuation(evict, leaving, _forbidden(found.stay, evict, options, daemon_sets))


def _forbidden(stay: Sequence[Pod], evict: Sequence[Pod], options: DrainOptions, daemon_sets: Collection[Key]) -> str:
    running = [pod for pod in evict if not pod.finished]
    reasons = []
    if options.ignore_daemon_sets is False:
        of_sets = [pod for pod in stay if drain_rules.daemon_set_of(pod) in daemon_sets]
        if of_sets:
            reasons.append(f"{listed(of_sets)} belong to DaemonSets, and ignoreDaemonSets is false")
    lonely = [pod for pod in running if pod.metadata.controller is None]
    if lonely and not options.force:
        reasons.append(f"{listed(lonely)} have no controller that would recreate them, and force is not set")
    local = [pod for pod in running if any(volume.empty_dir is not None for volume in pod.spec.volumes)]
    if local and not options.delete_empty_dir_data:
        reasons.append(
            f"{listed(local)} would lose the data in their emptyDir volumes, and deleteEmptyDirData is not set"
        )
    return "; ".join(reasons)


def _given_up(pod: Pod, options: DrainOptions, now: float) -> bool:
    """Return whether the Pod has been terminating for longer than the options allow to wait."""
    limit, deleted = options.skip_wait_for_delete_timeout_seconds, pod.metadata.deletion_timestamp
    return bool(limit and deleted is not None and now - clock.parse(deleted) > limit)
