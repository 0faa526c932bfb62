"""Controller of CustomMachines, hosts that register themselves. A CustomMachine is provisioned when its agent has
connected; there is no server to create or remove."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.capi import names as capi_names
from remuda.capi.pause import paused
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube import conditions
from remuda.kube.conditions import condition
from remuda.kube.objects import Key
from remuda.providers.bootstrap import custom
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import (
    AGENT_CONNECTED,
    CUSTOM_MACHINE,
    READY,
    RKE_BOOTSTRAP,
    CustomMachine,
    RKEBootstrap,
)
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome
from remuda.runtime.steps import step

NAME = "custommachine"
PUBLISH = step("custommachine.publish", "writes the status of a host that registered itself")

_CLUSTER_INDEX = "cluster"


class CustomMachineController:
    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._objects = manager.caches.of(CUSTOM_MACHINE)
        self._machines = manager.caches.of(MACHINE)
        self._clusters = manager.caches.of(CLUSTER)
        self._bootstraps = manager.caches.of(RKE_BOOTSTRAP)
        self._objects.index(_CLUSTER_INDEX, _cluster_of)
        controller = manager.controller(NAME, CUSTOM_MACHINE, self.reconcile)
        controller.watch(self._machines, _of_machine, "machine", facts=_machine_facts)
        controller.watch(self._bootstraps, self._of_bootstrap, "bootstrap", facts=_bootstrap_facts)
        controller.watch(self._clusters, self._of_cluster, "cluster", facts=_cluster_facts)

    def _of_bootstrap(self, bootstrap: RKEBootstrap) -> list[Key]:
        owner = bootstrap.metadata.owner(MACHINE.name, MACHINE.group)
        machine = None if owner is None else self._machines.get(bootstrap.metadata.namespace, owner.name)
        return [] if machine is None else _of_machine(machine)

    def _of_cluster(self, cluster: Cluster) -> list[Key]:
        return self._objects.keys(_CLUSTER_INDEX, str(cluster.key))

    async def reconcile(self, key: Key) -> Outcome:
        value = self._objects.raw(*key)
        if value is None:
            return DONE
        obj = CUSTOM_MACHINE.decode(value)
        if obj.metadata.deleting:
            return DONE
        draft = Draft(CUSTOM_MACHINE.target, value)
        outcome = self._decide(draft, obj)
        await save(self._client, draft, PUBLISH)
        return outcome

    def _decide(self, draft: Draft, obj: CustomMachine) -> Outcome:
        machine = self._machine_of(obj)
        cluster = None if machine is None else self._clusters.get(obj.metadata.namespace, machine.spec.cluster_name)
        pause = paused(cluster, obj.metadata)
        news = [pause]
        outcome: Outcome = DONE
        if pause.status == conditions.TRUE:
            outcome = Blocked("Paused", f"CustomMachine {obj.key}", pause.message)
        elif waits := self._not_yet(obj, machine):
            outcome = waits
            if not obj.status.ready:
                news.append(condition(READY, False, waits.reason, waits.message))
        else:
            if not obj.spec.provider_id:
                draft.spec["providerID"] = custom.provider_id(obj.metadata.name)
            draft.status["ready"] = True
            draft.status.setdefault("initialization", {})["provisioned"] = True
            draft.status["addresses"] = addresses(obj)
            news.append(condition(READY, True, "Registered"))
        conditions.put(draft.status, news, generation=0)  # the spec may be filled in by the same save
        return outcome

    def _machine_of(self, obj: CustomMachine) -> Machine | None:
        owner = obj.metadata.owner(MACHINE.name, MACHINE.group)
        return None if owner is None else self._machines.get(obj.metadata.namespace, owner.name)

    def _not_yet(self, obj: CustomMachine, machine: Machine | None) -> Blocked | None:
        if machine is None:
            return Blocked("WaitingForMachine", f"CustomMachine {obj.key}", "no Machine owns it yet")
        reference = machine.spec.bootstrap.config_ref
        bootstrap = None if reference is None else self._bootstraps.get(obj.metadata.namespace, reference.name)
        if bootstrap is None or not conditions.is_true(bootstrap.status.conditions, AGENT_CONNECTED):
            name = f"RKEBootstrap {obj.metadata.namespace}/{reference.name if reference is not None else '?'}"
            why = "the agent of the host has not connected yet: it does so at the end of the registration command"
            return Blocked("WaitingForHost", name, why)
        return None


def addresses(obj: CustomMachine) -> list[dict[str, Any]]:
    """Return the addresses that the host reported when it registered."""
    external = obj.metadata.annotations.get(names.ADDRESS, "")
    internal = obj.metadata.annotations.get(names.INTERNAL_ADDRESS, "") or external
    found = [("InternalIP", internal)]
    if external != internal:
        found.append(("ExternalIP", external))
    found.append(("Hostname", obj.metadata.labels.get(names.NODE_NAME, "")))
    return [{"type": type, "address": address} for type, address in found if address]


def _of_machine(machine: Machine) -> list[Key]:
    reference = machine.spec.infrastructure_ref
    if (reference.api_group, reference.kind) != (CUSTOM_MACHINE.group, CUSTOM_MACHINE.name):
        return []
    return [Key(machine.metadata.namespace, reference.name)]


def _cluster_of(obj: CustomMachine) -> Iterable[str]:
    return (f"{obj.metadata.namespace}/{obj.metadata.labels.get(capi_names.CLUSTER_NAME, '')}",)


def _machine_facts(machine: Machine) -> object:
    return machine.metadata.uid, machine.spec.infrastructure_ref, machine.spec.bootstrap.config_ref


def _bootstrap_facts(bootstrap: RKEBootstrap) -> object:
    return bootstrap.metadata.owner_references, conditions.is_true(bootstrap.status.conditions, AGENT_CONNECTED)


def _cluster_facts(cluster: Cluster) -> object:
    return cluster.spec.paused, cluster.metadata.uid
