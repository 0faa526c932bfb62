"""Objects that a user would apply for a simulated cluster. Pure: the caller creates them, in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from remuda.capi import names
from remuda.capi.types import CLUSTER, MACHINE_DEPLOYMENT
from remuda.kube.client import Target
from remuda.kube.objects import Kind
from remuda.lab.simulator.kinds import NEW, Family
from remuda.lab.simulator.types import MachineScript, Script, SimulatedClusterSpec

Json = dict[str, Any]

VERSION = "v1.36.0"


class Item(NamedTuple):
    target: Target
    obj: Json


class Blueprint(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a simulated cluster. `workers` are in one MachineDeployment `<name>-workers`; `machines` scripts the
    servers, also of workers unless `worker_machines` is set.
    """

    name: str
    namespace: str = "default"
    control_planes: int = 1
    workers: int = 0
    version: str = VERSION
    family: Family = NEW
    infrastructure: SimulatedClusterSpec = SimulatedClusterSpec()
    machines: MachineScript = MachineScript()
    worker_machines: MachineScript | None = None
    bootstrap: Script = Script()

    @property
    def deployment(self) -> str:
        return f"{self.name}-workers"

    def objects(self) -> list[Item]:
        family = self.family
        items = [
            self._item(family.cluster, self.name, msgspec.to_builtins(self.infrastructure)),
            self._item(family.machine_template, f"{self.name}-control-plane", _machine_template(self.machines)),
            self._item(family.control_plane, self.name, self._control_plane()),
            self._item(CLUSTER, self.name, self._cluster()),
        ]
        if self.workers:
            script = self.worker_machines or self.machines
            bootstrap = {"template": {"spec": {"script": msgspec.to_builtins(self.bootstrap)}}}
            items += [
                self._item(family.machine_template, self.deployment, _machine_template(script)),
                self._item(family.bootstrap_template, self.deployment, bootstrap),
                self._item(MACHINE_DEPLOYMENT, self.deployment, self._deployment()),
            ]
        return items

    def _item(self, kind: Kind[Any], name: str, spec: Json) -> Item:
        metadata: Json = {"name": name, "namespace": self.namespace, "labels": {names.CLUSTER_NAME: self.name}}
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
        return Item(kind.target, obj)

    def _reference(self, kind: Kind[Any], name: str) -> Json:
        return {"apiGroup": kind.group, "kind": kind.name, "name": name}

    def _cluster(self) -> Json:
        return {
            "infrastructureRef": self._reference(self.family.cluster, self.name),
            "controlPlaneRef": self._reference(self.family.control_plane, self.name),
        }

    def _control_plane(self) -> Json:
        template = self.family.machine_template
        name = f"{self.name}-control-plane"
        reference = self._reference(template, name)
        if self.family.old:
            machine: Json = {
                "infrastructureRef": {"apiVersion": template.api_version, "kind": template.name, "name": name}
            }
        else:
            machine = {"spec": {"infrastructureRef": reference}}
        return {
            "replicas": self.control_planes,
            "version": self.version,
            "machineTemplate": machine,
            "bootstrap": msgspec.to_builtins(self.bootstrap),
        }

    def _deployment(self) -> Json:
        spec = {
            "clusterName": self.name,
            "version": self.version,
            "bootstrap": {"configRef": self._reference(self.family.bootstrap_template, self.deployment)},
            "infrastructureRef": self._reference(self.family.machine_template, self.deployment),
        }
        return {"clusterName": self.name, "replicas": self.workers, "selector": {}, "template": {"spec": spec}}


def _machine_template(script: MachineScript) -> Json:
    return {"template": {"spec": {"script": msgspec.to_builtins(script)}}}
