"""Edge cases that the ordinary life of a cluster does not reach: small scenarios beside the main ones.

A Machine is put together by hand, then a MachineSet takes it in, then a MachineDeployment takes in that; its Node falls
ill and another program restarts the server; hooks hold it when it goes. And a Cluster without a control plane provider
has its kubeconfig written by the core.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import aclosing
from typing import Any

from remuda.capi import names
from remuda.capi.machine.workload import NODE
from remuda.capi.types import CLUSTER, MACHINE, MACHINE_DEPLOYMENT, MACHINE_HEALTH_CHECK, MACHINE_SET, Machine
from remuda.kube import conditions
from remuda.kube.objects import Kind
from remuda.lab.simulator.blueprint import VERSION
from tests.faults.controllers.scenario import NODES, UNREADY, Scenario, Stage
from tests.faults.controllers.view import PATIENCE_SECONDS, SECRETS, Json, available
from tests.lab.certificates import Authority, key_pem

MINE = {"made": "by-hand"}
HOOKS = {  # each holds a Machine that goes, for this reason
    f"{names.PRE_DRAIN_HOOK}/test": "WaitingForPreDrainHook",
    f"{names.PRE_TERMINATE_HOOK}/test": "WaitingForPreTerminateHook",
}
ONE = "one"  # the Machine that is put together by hand
GROUP = "hands"  # the MachineSet, and the MachineDeployment, that take it in


class ByHand(Scenario):
    """A control plane of one, and one Machine made by hand."""

    control_planes = 1
    workers = 0

    def stages(self) -> list[Stage]:
        return [self.apply, self.make_machine, self.take_in, self.restart_server, self.let_go, self.delete]

    async def make_machine(self) -> None:
        self.servers = self.control_planes + 1
        family = self.family
        await self.put(family.bootstrap, ONE, {})
        await self.put(family.machine, ONE, {})
        spec = self._machine_spec(family.bootstrap, family.machine, ONE)
        await self.put(MACHINE, ONE, spec, labels=MINE, annotations=dict.fromkeys(HOOKS, ""))
        await self.view.until(self._is_available, f"{self.key}: the Machine made by hand is available")
        self.say("made by hand")

    async def take_in(self) -> None:
        """Whoever takes it in makes no other."""
        family = self.family
        for template in (family.bootstrap_template, family.machine_template):
            await self.put(template, GROUP, {"template": {"spec": {}}})
        machine = self._machine_spec(family.bootstrap_template, family.machine_template, GROUP)
        template = {"metadata": {"labels": MINE}, "spec": machine}
        spec = {"clusterName": self.key.name, "replicas": 1, "selector": {"matchLabels": MINE}, "template": template}
        await self.put(MACHINE_SET, GROUP, spec, labels=MINE)
        await self.view.until(self._has_a_set, f"{self.key}: the MachineSet has taken in the Machine")
        await self.put(MACHINE_DEPLOYMENT, GROUP, spec)
        await self.view.until(self._has_a_deployment, f"{self.key}: the MachineDeployment has taken in the MachineSet")
        assert [one.metadata.name for one in self.worker_machines()] == [ONE]
        self.say("taken in")

    def _has_a_set(self) -> bool:
        owner = self._one().metadata.controller
        return owner is not None and owner.name == GROUP

    def _has_a_deployment(self) -> bool:
        found = self.view.deployments.get(self.namespace, GROUP)
        return found is not None and (found.status.replicas, found.status.available_replicas) == (1, 1)

    async def restart_server(self) -> None:
        """Another program heals it: the Machine stays, and the request goes."""
        template = self.family.remediation_template
        await self.put(template, "restart", {"template": {"spec": {}}})
        reference = {"apiVersion": template.api_version, "kind": template.name, "name": "restart"}
        checks = {"unhealthyNodeConditions": [UNREADY]}
        spec = {"clusterName": self.key.name, "selector": {"matchLabels": MINE}, "checks": checks}
        await self.put(MACHINE_HEALTH_CHECK, "restart", spec | {"remediation": {"templateRef": reference}})
        await self.break_node(self._one())
        await self._restarted()
        await self.view.until(self._is_healed, f"{self.key}: it is well again, and the request for that is gone")
        await self.view.delete(template.target, self.namespace, "restart")  # nobody else owns it
        self.say("restarted")

    async def _restarted(self) -> None:
        """Seen at the Node itself: the Machine may never have been called unhealthy, if whoever would have done so
        died once the request was made."""
        only = f"metadata.name={ONE}"
        async with asyncio.timeout(PATIENCE_SECONDS), self.workload() as client:
            while True:
                async with aclosing(client.watch(NODES, field_selector=only)) as watch:
                    async for change in watch:
                        if change.type != "BOOKMARK" and _is_ready(change.value):
                            return

    def _is_healed(self) -> bool:
        request = f"{self.family.remediation.plural}/{ONE}"
        return self._says("HealthCheckSucceeded") == "True" and request not in self.view.names(self.namespace)

    async def let_go(self) -> None:
        """It is not wanted any more, and each hook holds it until the hook is taken away."""
        await self.view.patch(MACHINE_DEPLOYMENT.target, self.namespace, GROUP, {"spec": {"replicas": 0}})
        for hook, reason in HOOKS.items():
            await self._waits_for(reason)
            patch = {"metadata": {"annotations": {hook: None}}}
            await self.view.patch(MACHINE.target, self.namespace, ONE, patch)
        await self.view.until(lambda: not self.worker_machines(), f"{self.key}: the Machine made by hand is gone")

    async def _waits_for(self, reason: str) -> None:
        def holds() -> bool:
            found = conditions.find(self._one().status.conditions, "Deleting")
            return found is not None and found.reason == reason

        await self.view.until(holds, f"{self.key}: {reason}")

    def _one(self) -> Machine:
        found = self.view.machines.get(self.namespace, ONE)
        assert found is not None, "the Machine is gone"
        return found

    def _is_available(self) -> bool:
        found = self.view.machines.get(self.namespace, ONE)
        return found is not None and available(found)

    def _says(self, condition: str) -> str:
        found = conditions.find(self._one().status.conditions, condition)
        return found.status if found is not None else ""

    def _machine_spec(self, bootstrap: Kind[Any], infrastructure: Kind[Any], name: str) -> Json:
        def reference(kind: Kind[Any]) -> Json:
            return {"apiGroup": kind.group, "kind": kind.name, "name": name}

        return {
            "clusterName": self.key.name,
            "version": VERSION,
            "bootstrap": {"configRef": reference(bootstrap)},
            "infrastructureRef": reference(infrastructure),
        }


def _is_ready(node: bytes) -> bool:
    return conditions.is_true(NODE.decode(node).status.conditions, "Ready")


class WithoutControlPlane(Scenario):
    """Somebody else looks after the control plane; its CA is in the Secret where it belongs."""

    def stages(self) -> list[Stage]:
        return [self.make_namespace, self.make_cluster, self.delete]

    async def make_cluster(self) -> None:
        kind = self.family.cluster
        await self.put(kind, self.key.name, {})
        await self._put_authority()
        reference = {"apiGroup": kind.group, "kind": kind.name, "name": self.key.name}
        await self.put(CLUSTER, self.key.name, {"infrastructureRef": reference})
        written = f"secrets/{names.kubeconfig_secret(self.key.name)}"
        await self.view.until(lambda: written in self.view.names(self.namespace), f"{self.key} has a kubeconfig")
        await self.view.delete(SECRETS, self.namespace, names.ca_secret(self.key.name))

    async def _put_authority(self) -> None:
        authority = Authority(self.key.name)
        pair = {"tls.crt": authority.pem, "tls.key": key_pem(authority.key)}
        metadata = {"name": names.ca_secret(self.key.name), "labels": {names.CLUSTER_NAME: self.key.name}}
        data = {name: base64.b64encode(content).decode() for name, content in pair.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": names.SECRET_TYPE, "data": data}
        await self.view.create(SECRETS, self.namespace, secret)
