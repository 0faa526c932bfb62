"""Dependencies of the Machine controller (`MachineDependencies`) and the state of one reconcile (`MachineScope`).

Phases read and fill the scope in order. They put changes of the Machine into the draft, waits into `waits` and errors
into `failures`. At the end, the controller turns all three into one write and one outcome.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from remuda.capi.contract import ProviderObject
from remuda.capi.external import Externals
from remuda.capi.machine.node_health import Link
from remuda.capi.machine.status import NOT_DELETING, Deleting
from remuda.capi.machine.workload import Node
from remuda.capi.types import Cluster, Machine, MachineDeployment, MachineDrainRule, MachineSet, Reference
from remuda.capi.write_rate import STATUS_SECONDS
from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.objects import Key
from remuda.runtime.caches import Caches
from remuda.runtime.draft import Draft
from remuda.runtime.events import Events
from remuda.runtime.informer import Informer
from remuda.runtime.outcome import Blocked, Outcome
from remuda.runtime.remote import Connection, RemoteClusters


class MachineOptions(msgspec.Struct, frozen=True, kw_only=True):
    status_seconds: float = STATUS_SECONDS  # between two writes of a Machine in progress, see `capi.write_rate`
    drain_retry_seconds: float = 20.0  # between two checks of pods or volumes, which are not watched
    eviction_seconds: float = 10.0  # for all evictions of one pass
    node_deletion_retry_seconds: float = 2.0
    node_labels: Sequence[re.Pattern[str]] = ()  # labels copied to Nodes in addition to the default ones
    node_annotations: Sequence[re.Pattern[str]] = ()


@dataclass(frozen=True, kw_only=True)
class MachineDependencies:
    client: Client
    caches: Caches
    externals: Externals
    remote: RemoteClusters
    events: Events
    machines: Informer[Machine]
    clusters: Informer[Cluster]
    sets: Informer[MachineSet]
    deployments: Informer[MachineDeployment]
    rules: Informer[MachineDrainRule]
    options: MachineOptions
    # When the deletion of a Machine's Node was first tried. No field of the API stores it; a restart starts the time
    # anew.
    node_deletions: dict[Key, float] = field(default_factory=dict)


@dataclass(kw_only=True)
class MachineScope:
    draft: Draft
    machine: Machine  # as read
    cluster: Cluster  # empty if there is none
    connection: Connection
    now: float
    machine_set: MachineSet | None = None
    deployment: MachineDeployment | None = None
    bootstrap: ProviderObject | None = None
    infrastructure: ProviderObject | None = None
    node: Node | None = None
    unclaimed: Sequence[Node] = ()
    deleting: Deleting = NOT_DELETING
    waits: list[Outcome] = field(default_factory=list)
    failures: dict[str, Exception] = field(default_factory=dict)  # by phase

    @property
    def namespace(self) -> str:
        return self.machine.metadata.namespace

    @property
    def cluster_key(self) -> Key:
        return Key(self.namespace, self.machine.spec.cluster_name)

    @property
    def current(self) -> Machine:
        """Return the Machine as this run leaves it."""
        return msgspec.convert(self.draft.obj, Machine)

    @property
    def generation(self) -> int:
        """Return the generation of the object after this run: a changed spec creates a new one."""
        changed = self.draft.obj.get("spec") != self.draft.base.get("spec")
        return self.machine.metadata.generation + changed

    @property
    def link(self) -> Link:
        found = self.connection
        return Link(found.connected, found.last_success, found.failures, found.error)

    def block(self, reason: str, on: str, message: str, check_after: float | None = None) -> None:
        self.waits.append(Blocked(reason, on, message, check_after))

    def begin(self, what: str) -> str:
        """Return the start time of this stage of the deletion; record the current time if none is recorded yet."""
        times = self.draft.status.setdefault("deletion", {})
        return str(times.setdefault(what, clock.rfc3339(self.now)))

    def place(self, ref: Reference) -> str:
        """Return kind, namespace and name of a provider's object, for messages."""
        return f"{ref.kind} {self.namespace}/{ref.name}"
