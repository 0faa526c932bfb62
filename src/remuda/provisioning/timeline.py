"""Timeline of a cluster and its machines, from what the API still knows of them.

Objects show when they were created and, in each condition, when it last changed; Events show more, for as long as they
are kept. Nothing else is read, so the timeline is equally true of a cluster that another process made. Of a condition
that has changed twice, only the last time is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE, MACHINE_DEPLOYMENT
from remuda.kube import clock
from remuda.kube.client import Client, Target, list_all
from remuda.kube.errors import NotFound
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.provisioning.tree_loader import NoSuchCluster
from remuda.provisioning.types import CLUSTER

Json = dict[str, Any]

_EVENTS = Target("v1", "events")
_CREATED = "SuccessfulCreate"  # what was created tells so itself

# The stages of a machine, and the conditions that end them, in their order.
STAGES = (("server", "InfrastructureReady"), ("plan", "PlanApplied"), ("node", "NodeHealthy"), ("ready", "Available"))

# Of all conditions, those that tell where something has got to.
_MILESTONES: Mapping[str, Sequence[str]] = {
    CLUSTER.name: ("ControlPlaneInitialized", "RemoteConnectionProbe", "Ready", "Available"),
    RKE_CONTROL_PLANE.name: ("Bootstrapped", "Ready"),
    MACHINE_DEPLOYMENT.name: ("Available",),
    MACHINE.name: ("InfrastructureReady", "PlanApplied", "NodeReady", "Available"),
}


class TimelineEvent(msgspec.Struct, frozen=True, kw_only=True):
    time: str  # RFC 3339
    kind: str
    name: str
    what: str
    after: float | None = None  # seconds since the moment before it of the same object


class TimelineStage(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    seconds: float
    over: bool = True


class MachineTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """One machine, from its creation to where it is."""

    machine: str
    stages: Sequence[TimelineStage] = ()


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str  # namespace/name
    moments: Sequence[TimelineEvent] = ()
    machines: Sequence[MachineTimeline] = ()


async def gather(client: Client, namespace: str, name: str) -> Timeline:
    """Raises NoSuchCluster."""
    labelled = f"{capi_names.CLUSTER_NAME}={capi_names.label_value(name)}"
    objects: list[Json] = []
    for target in (CLUSTER.target, CAPI_CLUSTER.target, RKE_CONTROL_PLANE.target):
        objects += await _listed(client, target, namespace, field_selector=f"metadata.name={name}")
    if not objects:
        raise NoSuchCluster(f"cluster {namespace}/{name} not found")
    for target in (MACHINE_DEPLOYMENT.target, MACHINE.target):
        objects += await _listed(client, target, namespace, label_selector=labelled)
    events = await _listed(client, _EVENTS, namespace)
    return timeline(f"{namespace}/{name}", objects, events, clock.time())


async def _listed(
    client: Client, target: Target, namespace: str, *, label_selector: str = "", field_selector: str = ""
) -> list[Json]:
    try:
        found = await list_all(client, target, namespace, label_selector=label_selector, field_selector=field_selector)
    except NotFound:
        return []
    return [msgspec.json.decode(item) for item in found.items]


# ---- pure ------------------------------------------------------------------------------------------------------------


def timeline(cluster: str, objects: Sequence[Json], events: Sequence[Json], now: float) -> Timeline:
    names = {str(obj["metadata"]["name"]) for obj in objects}
    found = list(dict.fromkeys(moment for obj in objects for moment in _of_object(obj)))
    found += [moment for event in events for moment in _of_event(event, names)]
    machines = [obj for obj in objects if obj.get("kind") == MACHINE.name]
    return Timeline(
        cluster=cluster,
        moments=list(_with_spans(sorted(found, key=lambda one: one.time))),
        machines=sorted((_course(obj, now) for obj in machines), key=lambda one: one.machine),
    )


def _of_object(obj: Json) -> Iterator[TimelineEvent]:
    metadata, kind = obj["metadata"], str(obj.get("kind") or "")

    def moment(time: object, what: str) -> TimelineEvent:
        return TimelineEvent(time=str(time), kind=kind, name=str(metadata["name"]), what=what)

    yield moment(metadata["creationTimestamp"], "created")
    for one in (obj.get("status") or {}).get("conditions") or ():
        if one.get("lastTransitionTime") and one.get("type") in _MILESTONES.get(kind, ()):
            yield moment(one["lastTransitionTime"], _told(one))
    if metadata.get("deletionTimestamp"):
        yield moment(metadata["deletionTimestamp"], "deleted")


def _told(one: Json) -> str:
    return str(one["type"]) if one.get("status") == "True" else f"not {one['type']}: {one.get('reason') or 'not known'}"


def _of_event(event: Json, names: set[str]) -> Iterator[TimelineEvent]:
    about = event.get("involvedObject") or {}
    time = event.get("firstTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    if about.get("name") in names and time and event.get("reason") != _CREATED:
        what = f"{event.get('reason')}: {event.get('message')}"
        yield TimelineEvent(time=str(time), kind=str(about.get("kind") or ""), name=str(about["name"]), what=what)


def _with_spans(moments: Iterable[TimelineEvent]) -> Iterator[TimelineEvent]:
    last: dict[tuple[str, str], float] = defaultdict(float)
    for one in moments:
        at, who = clock.parse(one.time), (one.kind, one.name)
        yield msgspec.structs.replace(one, after=at - last[who]) if who in last else one
        last[who] = at


def _course(machine: Json, now: float) -> MachineTimeline:
    """Return the stages up to the current one. If a stage ended before the previous stage, the Machine has gone through
    that one again: the duration of this stage and of all later ones is unknown."""
    found = {str(one.get("type")): one for one in (machine.get("status") or {}).get("conditions") or ()}
    at = clock.parse(machine["metadata"]["creationTimestamp"])
    stages = []
    for name, type in STAGES:
        end = _ended(found.get(type))
        if end is None:
            stages.append(TimelineStage(name=name, seconds=max(now - at, 0.0), over=False))
            break
        if end < at:
            break
        stages.append(TimelineStage(name=name, seconds=end - at))
        at = end
    return MachineTimeline(machine=str(machine["metadata"]["name"]), stages=stages)


def _ended(one: Mapping[str, Any] | None) -> float | None:
    if one is None or one.get("status") != "True" or not one.get("lastTransitionTime"):
        return None
    return clock.parse(str(one["lastTransitionTime"]))
