"""Controller of RKEControlPlanes: keeps the nodes of a Cluster as the spec declares.

    pin the installer and the renderer → gather → planner.decide → apply the decision → kubeconfig → status

The controller decides nothing about nodes itself: `planner.decide` does, without I/O, on the facts that `gather` reads.
The process may die after any write, so the order matters: the finalizer comes first, pins come before plans, and marks
and plans are patches that fail if the object has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from remuda.capi.cluster_index import index_by_cluster
from remuda.capi.pause import paused
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT, Cluster
from remuda.capi.write_rate import STATUS_SECONDS, WriteRate
from remuda.kube import conditions
from remuda.kube.errors import Conflict, StatusError
from remuda.kube.objects import Key
from remuda.kube.wait import Wait
from remuda.providers import ProviderError
from remuda.providers.controlplane import admission, installation, kubeconfig, removal, status, status_writer, wakeups
from remuda.providers.controlplane.apply_decision import DecisionExecutor
from remuda.providers.controlplane.gather import Gathered, Gatherer, Silence
from remuda.providers.controlplane.installation import Lookup, Pack
from remuda.providers.controlplane.planner.decide import decide
from remuda.providers.controlplane.planner.decision import Decision
from remuda.providers.controlplane.planner.observation import Observation
from remuda.providers.shared import distros
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable, soonest
from remuda.runtime.remote import RemoteClusters
from remuda.runtime.steps import step

NAME = "rkecontrolplane"
PREPARE = step("rkecontrolplane.prepare", "writes a control plane's finalizer and the choices that its plans keep")
UNDECIDED = step(
    "rkecontrolplane.publish-wait", "writes to the status of a control plane why the planner cannot run yet"
)

Decide = Callable[[Observation], Decision]

_CONCURRENCY = 20
_FEW_HOSTS = 4  # with more hosts the planner runs in a thread, so that it does not block the event loop
_HELD_SECONDS = 15.0


class RKEControlPlaneController:
    def __init__(
        self,
        manager: Manager,
        remote: RemoteClusters,
        lookup: Lookup,
        decide: Decide = decide,
        *,
        pack: Pack | None = None,
        proxied: bool = False,
        tunnels_at: Site | None = None,
        silence: Silence | None = None,
    ) -> None:
        self._client = manager.client
        self._events = manager.events
        self._remote = remote
        self._lookup = lookup
        self._decide = decide
        self._proxied = proxied
        self._objects = manager.caches.of(RKE_CONTROL_PLANE)
        index_by_cluster(manager.caches, MACHINE)
        index_by_cluster(manager.caches, MACHINE_DEPLOYMENT)
        self._source = Gatherer(manager, remote, tunnels_at, silence)
        self._controller = manager.controller(NAME, RKE_CONTROL_PLANE, self.reconcile, concurrency=_CONCURRENCY)
        self._bundles = installation.Bundles(pack, manager.tasks, self._controller.enqueue)
        seconds = manager.settling(STATUS_SECONDS)
        self._publisher = status_writer.Publisher(
            manager, self._source.machines, WriteRate(seconds, lambda: self._controller.backlog), WriteRate(seconds)
        )
        wakeups.listen(self._controller, self._objects, self._source, manager.caches, remote)

    async def reconcile(self, key: Key) -> Outcome:
        value = self._objects.raw(*key)
        if value is None:
            await self._forget(key)
            return DONE
        plane = RKE_CONTROL_PLANE.decode(value)
        cluster = self._source.clusters.get(key.namespace, plane.spec.cluster_name)
        if plane.metadata.deleting:
            left = self._source.machines_of(Key(key.namespace, plane.spec.cluster_name))
            # No other controller removes our hook: a Machine that keeps it would never be deleted.
            await removal.release_all(self._client, self._source.machines, left)
            return await removal.remove(self._client, Draft(RKE_CONTROL_PLANE.target, value), plane, left)
        try:
            return await self._keep(value, plane, cluster)
        except _Undecided as undecided:
            return await self._publish_wait(key, cluster, undecided)
        except Exception as error:
            if not isinstance(error, Conflict):  # then another writer was faster, which is harmless
                why = str(error) or type(error).__name__
                wait = Wait(reason="Failed", on=f"RKEControlPlane {key}", missing=why, then="the controller retries")
                await self._publish_wait(key, cluster, _Undecided(wait))
            raise

    async def _forget(self, key: Key) -> None:
        """Release the Machines of a control plane that does not exist: no controller would do it later."""
        self._publisher.forget(key)
        if not wakeups.planes_of(self._objects, key):
            await removal.release_all(self._client, self._source.machines, self._source.machines_of(key))

    async def _publish_wait(self, key: Key, cluster: Cluster | None, undecided: _Undecided) -> Outcome:
        wait, value = undecided.wait, self._objects.raw(*key)
        if value is not None:
            plane, draft = RKE_CONTROL_PLANE.decode(value), Draft(RKE_CONTROL_PLANE.target, value)
            news = [paused(cluster, plane.metadata), *status.undecided(plane.status.conditions, wait)]
            conditions.put(draft.status, news, generation=plane.metadata.generation)
            await save(self._client, draft, UNDECIDED)
        return Blocked(wait.reason, wait.on, str(wait), undecided.check_after)

    # ---- one run

    async def _keep(self, value: bytes, plane: RKEControlPlane, cluster: Cluster | None) -> Outcome:
        cluster = await self._existing_cluster(plane, cluster)
        _check(plane)
        version = distros.parse_version(plane.spec.kubernetes_version)
        distro = distros.of(version)
        installer = await installation.installer(plane, distro, version, self._lookup, self._bundles)
        if isinstance(installer, Wait):
            raise _Undecided(installer, installation.AGAIN_SECONDS)
        draft = Draft(RKE_CONTROL_PLANE.target, value)
        draft.add_finalizer(removal.FINALIZER)
        draft.status["renderer"] = {"version": installation.renderer(plane).version}
        draft.status["installer"] = msgspec.to_builtins(installer)
        # Store the pins before any plan is rendered with them: after a crash, the next run must render the same plans.
        value = await save(self._client, draft, PREPARE)
        plane = RKE_CONTROL_PLANE.decode(value)
        gathered = await self._source.gather(plane, cluster, distro, version, installer)
        decision = await self._decided(gathered.observed)
        work = DecisionExecutor(self._client, self._events, self._source, plane, gathered)
        await work.carry_out(decision)
        if not gathered.observed.paused:
            await work.label_servers()
            await work.keep_nodes()
        kept = await self._keep_kubeconfig(plane, cluster, gathered, work)
        judged = status.ControlPlaneStatusInputs(
            observed=gathered.observed,
            decision=decision,
            authorities=gathered.authorities,
            connection=gathered.connection,
            machines=list(gathered.machines.values()),
            before=plane.status.conditions,
            held=work.held,
            foreign_kubeconfig=kept.foreign,
            error=next((str(error) for error in work.errors if not isinstance(error, Conflict)), ""),
        )
        published = await self._publisher.publish(value, cluster, gathered, judged)
        for error in work.errors:
            raise error
        return soonest(published, _next_run(decision, work, kept))

    async def _existing_cluster(self, plane: RKEControlPlane, cluster: Cluster | None) -> Cluster:
        name = f"Cluster {plane.metadata.namespace}/{plane.spec.cluster_name}"
        if cluster is None:
            raise _Undecided(Wait(reason="WaitingForCluster", on=name, missing="does not exist"))
        if cluster.metadata.deleting:
            await removal.release_all(self._client, self._source.machines, self._source.machines_of(cluster.key))
            raise _Undecided(Wait(reason="Deleting", on=name, missing="is being deleted"))
        return cluster

    async def _decided(self, observed: Observation) -> Decision:
        if len(observed.hosts) <= _FEW_HOSTS:
            return self._decide(observed)
        return await asyncio.to_thread(self._decide, observed)

    async def _keep_kubeconfig(
        self, plane: RKEControlPlane, cluster: Cluster, gathered: Gathered, work: DecisionExecutor
    ) -> kubeconfig.KubeconfigState:
        subject = gathered.observed.cluster
        secrets = self._source.named.secrets
        where = kubeconfig.endpoint(
            subject.endpoint,
            gathered.reported_endpoint,
            status.serving(gathered.observed),
            subject.distro.api_port,
            kubeconfig.present_server(secrets, plane, proxied=self._proxied),
        )
        signing = gathered.authorities.signing
        try:
            kept = await kubeconfig.keep(self._client, secrets, plane, where, signing, proxied=self._proxied)
        except (StatusError, Retryable) as error:
            work.errors.append(error)
            return kubeconfig.KubeconfigState()
        if kept.present and cluster.status.initialization.infrastructure_provisioned:
            self._remote.want(cluster.key)
        if kept.written and self._proxied:  # no other controller watches this Secret
            self._remote.nudge(cluster.key)
        return kept


class _Undecided(ProviderError):
    """Exception that names what is missing before the planner can decide anything."""

    def __init__(self, wait: Wait, check_after: float | None = None) -> None:
        super().__init__(str(wait))
        self.wait = wait
        self.check_after = check_after


def _check(plane: RKEControlPlane) -> None:
    """Raise for a spec that admission should have refused, so that the controller does not act on it."""
    wrong = [str(error) for error in admission.complaints(plane)]
    if wrong:
        on, then = f"RKEControlPlane {plane.key}", "correct the spec; until then nothing changes"
        raise _Undecided(Wait(reason="InvalidSpec", on=on, missing="; ".join(wrong), then=then))


def _next_run(decision: Decision, work: DecisionExecutor, kept: kubeconfig.KubeconfigState) -> Outcome:
    looks = [decision.look_again, kept.renew_in, _HELD_SECONDS if work.held else None]
    soon = min((seconds for seconds in looks if seconds is not None), default=None)
    if decision.waits:
        first = decision.waits[0]
        return Blocked(first.reason, first.on, str(first), soon)
    return DONE if soon is None else Requeue(max(0.0, soon))
