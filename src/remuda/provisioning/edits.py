"""Edits of a declared Cluster (scale, upgrade) as JSON patches that change nothing else. Pure.

A patch tests that the Cluster and the positions of its pools are unchanged. Otherwise the server rejects the patch, and
the caller computes a new one from the current object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.provisioning import pools as pool_rules
from remuda.provisioning.declaration import BadRequest
from remuda.provisioning.types import CLUSTER, MachinePool

Json = dict[str, Any]

_POOLS = "/spec/rkeConfig/machinePools"
_VERSION = "/spec/kubernetesVersion"


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """Requested numbers of machines; None: not specified."""

    servers: int | None = None
    workers: int | None = None
    pools: Mapping[str, int] = {}


def quantities(cluster: Json) -> dict[str, int]:
    """Return the declared number of machines of each pool."""
    return {pool.name: pool_rules.quantity(pool) for pool in _pools(cluster)}


def scaled(cluster: Json, wanted: Scale) -> dict[str, int]:
    """Return the new number of machines of each pool that the request selects. Raises BadRequest."""
    pools = _pools(cluster)
    name = cluster["metadata"]["name"]
    if not pools:
        raise BadRequest(f"cluster {name} has no machine pools: its hosts register themselves, see docs/bootstrap.md")
    found: dict[str, int] = {}
    for pool, quantity in wanted.pools.items():
        if pool not in {one.name for one in pools}:
            raise BadRequest(f"cluster {name} has no pool {pool}; it has {_listed(pools)}")
        found[pool] = quantity
    if wanted.servers is not None:
        _put(found, _meant([one for one in pools if _is_server(one)], "servers", name, pools), wanted.servers)
    if wanted.workers is not None:
        _put(found, _meant([one for one in pools if not _is_server(one)], "workers", name, pools), wanted.workers)
    _judge(pools, found)
    return found


def scale_patch(cluster: Json, wanted: Mapping[str, int]) -> list[Json]:
    """Return the JSON patch; empty if nothing changes. Raises BadRequest if a pool was deleted in the meantime."""
    names = [pool.name for pool in _pools(cluster)]
    present = quantities(cluster)
    found: list[Json] = []
    for pool, quantity in wanted.items():
        if pool not in present:
            raise BadRequest(f"pool {pool} was deleted in the meantime")
        if present[pool] != quantity:
            place = f"{_POOLS}/{names.index(pool)}"
            found += [
                {"op": "test", "path": f"{place}/name", "value": pool},
                {"op": "add", "path": f"{place}/quantity", "value": quantity},
            ]
    return [_same(cluster), *found] if found else []


def version_patch(cluster: Json, version: str) -> list[Json]:
    """Return the JSON patch; empty if nothing changes."""
    present = declared_version(cluster)
    if present == version:
        return []
    return [
        _same(cluster),
        {"op": "test", "path": _VERSION, "value": present},
        {"op": "replace", "path": _VERSION, "value": version},
    ]


def declared_version(cluster: Json) -> str:
    return str((cluster.get("spec") or {}).get("kubernetesVersion") or "")


def version_troubles(cluster: Json, version: str, machines: Sequence[Json]) -> list[str]:
    """Return the reasons why the cluster cannot change to that version from the versions of its nodes, as text."""
    from remuda.providers.controlplane.rules import versions
    from remuda.providers.controlplane.rules.versions import running_on

    running = [found for machine in machines if (found := running_on(machine)) is not None]
    errors = versions.transitions(declared_version(cluster), version, running, "")
    return [f"{error.bad} {error.detail}".strip() for error in errors]


# ---- pools -----------------------------------------------------------------------------------------------------------


def _pools(cluster: Json) -> Sequence[MachinePool]:
    config = CLUSTER.decode(msgspec.json.encode(cluster)).spec.rke_config
    return config.machine_pools if config is not None else ()


def _is_server(pool: MachinePool) -> bool:
    return pool.etcd_role or pool.control_plane_role


def _meant(found: Sequence[MachinePool], word: str, name: str, pools: Sequence[MachinePool]) -> str:
    if len(found) == 1:
        return found[0].name
    if found:
        example = " ".join(f"--pool {one.name}=N" for one in found)
        raise BadRequest(f"cluster {name} has several pools of {word}: choose with {example}")
    raise BadRequest(
        f"cluster {name} has no pool of {word}; it has {_listed(pools)}. To add a pool, edit its manifest: remuda get "
        f"cluster {name} -o yaml"
    )


def _put(found: dict[str, int], pool: str, quantity: int) -> None:
    if pool in found and found[pool] != quantity:
        raise BadRequest(f"pool {pool} has two quantities, {found[pool]} and {quantity}: give only one")
    found[pool] = quantity


def _judge(pools: Sequence[MachinePool], wanted: Mapping[str, int]) -> None:
    for pool in pools:
        if pool.name in wanted and wanted[pool.name] < 0:
            raise BadRequest(f"{pool.name}={wanted[pool.name]}: the quantity must be 0 or more")
        if pool.name in wanted and pool_rules.is_autoscaled(pool):
            bounds = f"{pool.autoscaling_min_size} to {pool.autoscaling_max_size}"
            raise BadRequest(
                f"pool {pool.name} is scaled by an autoscaler, from {bounds}: change autoscalingMinSize and "
                "autoscalingMaxSize in its manifest instead"
            )
    before = pool_rules.roles_without_machines(pools)
    for role in pool_rules.roles_without_machines(pools, wanted):
        if role not in before:
            raise BadRequest(f"{pool_rules.last_one(role)}. To delete the cluster: remuda delete cluster NAME")


def _listed(pools: Sequence[MachinePool]) -> str:
    return ", ".join(f"{pool.name} ({_roles(pool)}, {pool_rules.quantity(pool)})" for pool in pools)


def _roles(pool: MachinePool) -> str:
    roles = (("etcd", pool.etcd_role), ("control plane", pool.control_plane_role), ("worker", pool.worker_role))
    return "+".join(name for name, held in roles if held) or "no role"


def _same(cluster: Json) -> Json:
    return {"op": "test", "path": "/metadata/uid", "value": cluster["metadata"]["uid"]}
