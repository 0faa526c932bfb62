"""Preview of a change, machine by machine, before it is made. Pure.

Machines of a pool that needs another template are replaced; all others keep their servers. Changes in place are found
by rendering each host's plan twice, for the cluster as declared now and as it would be. All other inputs of a plan
(tokens, authorities, addresses) are the same both times, so no secret has to be read for it. The order is the
planner's: tier after tier, and a limited number of machines at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from remuda.capi.machineset import members
from remuda.capi.types import Machine
from remuda.providers.controlplane import hosts, render
from remuda.providers.controlplane.planner import rollout_order
from remuda.providers.controlplane.planner.host_configuration import drain_options_for, is_drain_wanted
from remuda.providers.controlplane.planner.observation import ClusterFacts as Subject
from remuda.providers.controlplane.planner.observation import ObservedHost, Tokens
from remuda.providers.controlplane.references import Resolved
from remuda.providers.controlplane.render import Placement
from remuda.providers.controlplane.render import consequence as plan_consequence
from remuda.providers.shared import distros
from remuda.providers.shared.distros import Distro, Version
from remuda.providers.shared.types.bootstrap import RKEBootstrap
from remuda.providers.shared.types.configuration import Taint
from remuda.providers.shared.types.controlplane import Installer, RKEControlPlane
from remuda.provisioning.consequence import Consequence, Standing, consequences
from remuda.provisioning.generate import Desired, DesiredPool
from remuda.provisioning.pools import POOL_NAME

Json = dict[str, Any]
Action = Literal["keep", "reconfigure", "restart", "drain", "replace", "held", "create", "delete"]

_TOKENS = Tokens("preview", "preview")  # the same in both plans
_SERVERS = ("https://preview",)
_DELETION_ORDER = "Oldest"  # of MachineDeployments of pools
_ACTIONS: Mapping[render.Change, Action] = {
    "none": "keep",
    "minor": "reconfigure",
    "apply": "reconfigure",
    "restart": "restart",
    "drain": "restart",  # unless drains are enabled
}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Effect of the change on one machine."""

    pool: str
    machine: str  # empty: it does not exist yet
    action: Action
    why: str = ""
    turn: int = 0  # in which turn; 0: not in a turn of the planner
    tier: str = ""


class EtcdMembers(msgspec.Struct, frozen=True, kw_only=True):
    """Declared number of etcd members, before and after the change."""

    before: int = 0
    after: int = 0

    @property
    def loses_margin(self) -> bool:
        """Return whether fewer failures are tolerated afterwards."""
        return tolerated(self.after) < tolerated(self.before)


def tolerated(members: int) -> int:
    """Return how many members may fail while the others are a majority."""
    return max(0, members - 1) // 2


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str  # namespace/name
    new: bool = False  # there is no such cluster yet
    steps: Sequence[Step] = ()
    waits: Sequence[str] = ()  # what must be there first
    etcd: EtcdMembers = EtcdMembers()

    @property
    def replaces(self) -> bool:
        return any(step.action == "replace" for step in self.steps)

    @property
    def destroys(self) -> bool:
        """Return whether machines are lost, or the tolerance of etcd for the loss of machines."""
        return self.etcd.loses_margin or any(step.action in ("delete", "replace") for step in self.steps)


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A control plane, and what its spec names."""

    plane: RKEControlPlane
    resolved: Resolved


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """Present state of a cluster."""

    declared: Declared | None = None  # None: there is no control plane yet
    standing: Mapping[str, Standing] = {}  # by the name of the MachineDeployment
    machines: Sequence[Machine] = ()
    bootstraps: Mapping[str, RKEBootstrap] = {}  # by the name of the Machine


def preview(cluster: str, desired: Desired, wanted: Declared, present: Present) -> Preview:
    said = consequences(desired, present.standing)
    by_pool = {one.pool: one for one in said if one.action != "remove"}
    steps = [step for one in said for step in _lost(one)]
    leaving = {step.machine for step in steps}
    for pool in desired.pools:
        scaled = _scaled(pool, present, by_pool[pool.name])
        steps += scaled
        leaving |= {step.machine for step in scaled}
    staying = [machine for machine in present.machines if machine.metadata.name not in leaving]
    steps += _in_place(desired, wanted, present, staying)
    return Preview(
        cluster=cluster,
        new=present.declared is None,
        steps=sorted(steps, key=lambda step: (step.turn, step.pool, step.machine)),
        waits=[str(problem) for problem in wanted.resolved.problems],
        etcd=_etcd_members(desired, present),
    )


def _etcd_members(desired: Desired, present: Present) -> EtcdMembers:
    """Hosts that registered themselves are in no pool: the change neither adds nor removes them."""
    pooled = {name for standing in present.standing.values() for name in standing.machines}
    registered = sum(
        1
        for machine in present.machines
        if machine.metadata.name not in pooled and hosts.roles(machine.metadata.labels).etcd
    )
    return EtcdMembers(
        before=registered + sum(_members(standing.deployment) for standing in present.standing.values()),
        after=registered + sum(_members(pool.deployment) for pool in desired.pools),
    )


def _members(deployment: Mapping[str, Any]) -> int:
    return _replicas(deployment) if hosts.roles(_metadata(deployment).get("labels") or {}).etcd else 0


def _replicas(deployment: Mapping[str, Any]) -> int:
    wanted = deployment["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


# ---- machines that come and go ---------------------------------------------------------------------------------------


def _lost(said: Consequence) -> list[Step]:
    if said.action == "remove":
        why = "its pool is removed"
        return [Step(pool=said.pool, machine=name, action="delete", why=why) for name in said.machines]
    if said.action != "replace" or said.held:
        return []
    why = f"driver option {', '.join(said.options)}" if said.options else "another machine template"
    return [Step(pool=said.pool, machine=name, action="replace", why=why) for name in said.machines]


def _scaled(pool: DesiredPool, present: Present, said: Consequence) -> list[Step]:
    """An autoscaler's number is not ours to change, and a pool whose machines are replaced comes to its number so."""
    if pool.autoscaled and said.action != "create":
        return []
    count = _replicas(pool.deployment)
    there = [machine for machine in present.machines if machine.metadata.name in set(said.machines)]
    missing = count - len(there)
    if missing >= 0:
        why = "new pool" if said.action == "create" else f"quantity is {count}"
        return [Step(pool=pool.name, machine="", action="create", why=why) for _ in range(missing)]
    if said.action == "replace" and not said.held:
        return []
    chosen = members.choose_victims(there, -missing, _DELETION_ORDER)
    return [
        Step(pool=pool.name, machine=machine.metadata.name, action="delete", why=f"quantity is {count}")
        for machine in chosen
    ]


# ---- machines that stay ----------------------------------------------------------------------------------------------


def _in_place(desired: Desired, wanted: Declared, present: Present, staying: Sequence[Machine]) -> list[Step]:
    if present.declared is None:
        return []
    pools = {pool.name: pool for pool in desired.pools}
    held = {one.pool: one for one in consequences(desired, present.standing) if one.held}
    was, now = _subject(present.declared), _subject(wanted, like=present.declared)
    before = [_host(machine, present, was.distro) for machine in staying]
    after = [_altered(host, pools.get(host.pool), present) for host in before]
    init = next((host for host in after if host.init), None)
    judged = [_step(was, now, old, new, init) for old, new in zip(before, after, strict=True)]
    turns = _turns(now, after, judged)
    steps = []
    for host, step in zip(after, judged, strict=True):
        if step.pool in held and step.action == "keep":
            step = msgspec.structs.replace(step, action="held", why=str(held[step.pool]))
        steps.append(msgspec.structs.replace(step, turn=turns.get(host.name, 0)))
    return steps


def _subject(declared: Declared, like: Declared | None = None) -> Subject:
    """`like`: what is decided once and pinned, or does not come by the declaration."""
    plane, pinned = declared.plane, (like or declared).plane
    version = distros.parse_version(plane.spec.kubernetes_version)
    found = declared.resolved
    return Subject(
        name=plane.metadata.name,
        namespace=plane.metadata.namespace,
        uid=pinned.metadata.uid,
        created=0.0,
        spec=plane.spec,
        distro=distros.of(version),
        version=version,
        renderer=pinned.status.renderer.version if pinned.status.renderer is not None else render.CURRENT,
        installer=_installer(version, pinned),
        tokens=_TOKENS,
        authorities={},
        config_generation=pinned.status.config_generation,
        registries=found.registries,
        files=found.files,
        config_files=found.config_files,
        s3=found.s3,
    )


def _installer(version: Version, plane: RKEControlPlane) -> Installer:
    """Return a version's installer. The source of another version is not decided yet; here it only has to differ."""
    pinned = plane.status.installer
    if pinned is not None and pinned.version == version.text:
        return pinned
    return Installer(version=version.text, image=version.text)


def _host(machine: Machine, present: Present, distro: Distro) -> ObservedHost:
    bootstrap = present.bootstraps.get(machine.metadata.name)
    try:
        return hosts.host(machine, bootstrap, None, None, distro)
    except hosts.BadNote:
        return hosts.host(machine, bootstrap, None, None, distro, notes=False)


def _altered(host: ObservedHost, pool: DesiredPool | None, present: Present) -> ObservedHost:
    """The host as Cluster API would relabel its Machine: metadata of the pool's template, in place."""
    if pool is None:
        return host
    standing = present.standing.get(pool.deployment_name)
    old = _metadata(standing.deployment) if standing is not None else {}
    new = _metadata(pool.deployment)
    kept = {name: value for name, value in host.labels.items() if name not in (old.get("labels") or {})}
    labels = {**kept, **new["labels"]}
    notes = new.get("annotations") or {}
    return msgspec.structs.replace(
        host,
        labels=labels,
        roles=hosts.roles(labels),
        node_labels=msgspec.json.decode(notes.get(hosts.names.NODE_LABELS, "{}"), type=dict[str, str]),
        node_taints=msgspec.json.decode(notes.get(hosts.names.NODE_TAINTS, "[]"), type=list[Taint]),
    )


def _metadata(deployment: Mapping[str, Any]) -> Json:
    found: Json = deployment["spec"]["template"].get("metadata") or {}
    return found


def _step(was: Subject, now: Subject, old: ObservedHost, new: ObservedHost, init: ObservedHost | None) -> Step:
    plan = render.render(was, old, _placement(old))
    next_plan = render.render(now, new, _placement(new), before=plan)
    change = render.compare(plan, next_plan)
    action = _ACTIONS[change]
    if change == "drain" and is_drain_wanted(drain_options_for(now.spec.upgrade_strategy, new.roles)):
        action = "drain"
    tier = rollout_order.tier_of(new, init)
    return Step(
        pool=new.labels.get(POOL_NAME, new.pool),
        machine=new.name,
        action=action,
        why=", ".join(plan_consequence.changes(plan, next_plan)),
        tier=tier or "",
    )


def _placement(host: ObservedHost) -> Placement:
    """By whom it joins changes nothing on a host that has joined."""
    return Placement(host.init, () if host.init else _SERVERS)


def _turns(cluster: Subject, staying: Sequence[ObservedHost], steps: Sequence[Step]) -> dict[str, int]:
    """Return the turn of each machine that changes: tier after tier, in a tier so many at a time, the oldest first."""
    found: dict[str, int] = {}
    turn = 0
    changing = {step.machine: step.tier for step in steps if step.action != "keep"}
    for tier in rollout_order.ORDER:
        members = sorted(
            (host for host in staying if changing.get(host.name) == tier), key=lambda host: (host.created, host.name)
        )
        whole = sum(1 for step in steps if step.tier == tier)
        width = rollout_order.at_a_time(cluster.spec.upgrade_strategy, tier, whole) if members else 1
        for start in range(0, len(members), width):
            turn += 1
            found |= {host.name: turn for host in members[start : start + width]}
    return found
