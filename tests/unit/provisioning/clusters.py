"""Clusters for tests of what is made of them."""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.provisioning import generate
from remuda.provisioning.generate import Desired
from remuda.provisioning.machine_templates import Material
from remuda.provisioning.types import CLUSTER, Cluster, MachinePool

Json = dict[str, Any]

OPTIONS: Json = {"size": {"type": "string", "default": "small"}, "zone": {"type": "string"}, "tags": {"type": "array"}}


def pool(name: str = "servers", **more: Any) -> Json:
    roles = {} if any(key.endswith("Role") for key in more) else {"etcdRole": True, "controlPlaneRole": True}
    return {"name": name, "machineConfigRef": {"kind": "SimConfig", "name": name}, **roles, **more}


def typed(raw: Json) -> MachinePool:
    return msgspec.convert(raw, MachinePool)


def declared(*pools: Json, metadata: Json | None = None, spec: Json | None = None, **rke: Any) -> Json:
    return {
        "apiVersion": CLUSTER.api_version,
        "kind": CLUSTER.name,
        "metadata": {"name": "prairie", "namespace": "fleet-default", "uid": "u", "generation": 3, **(metadata or {})},
        "spec": {
            "kubernetesVersion": "v1.34.1+k3s1",
            "rkeConfig": {"machinePools": list(pools), **rke},
            **(spec or {}),
        },
    }


def read(raw: Json) -> Cluster:
    return CLUSTER.decode(msgspec.json.encode(raw))


def material(**config: Any) -> Material:
    return Material(config={"apiVersion": "x", "kind": "SimConfig", "metadata": {}, **config}, options=OPTIONS)


def desired(raw: Json, **configs: Json) -> Desired:
    """`configs`: by pool; empty ones for those that are not named."""
    cluster = read(raw)
    config = cluster.spec.rke_config
    pools = config.machine_pools if config is not None else ()
    materials = {one.name: material(**configs.get(one.name, {})) for one in pools}
    return generate.generate(raw, cluster, materials, "c-m-12345678")
