"""The rights of provisioning in examples/rbac.yaml, beside what its code asks for in the scenario of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from remuda.app import controllers
from remuda.capi.types import MACHINE_DEPLOYMENT
from remuda.kube.client import Client
from remuda.providers.shared.types.machine import NODE_DRIVER, config_kind
from remuda.provisioning.types import CLUSTER, MANAGEMENT_CLUSTER
from tests.unit.test_permissions import MANAGER, PROVISIONING, RIGHTS, rights
from tests.unit.test_permissions_providers import at_work, condition, engine, gone, until

CONFIG = config_kind("sim")
Json = dict[str, Any]


async def test_provisioning_rbac_rules_are_sufficient_and_all_used(tmp_path: Path) -> None:
    async with engine(tmp_path) as (server, authorizer):
        await controllers.make_workspaces(server.client(MANAGER), controllers.EVERY)
        async with at_work(server, tmp_path):
            client = server.client()
            await until(client, NODE_DRIVER, "sim", lambda driver: condition(driver, "Active") == "True", namespace="")
            for from_management in (False, True):
                await a_cluster_comes_and_goes(client, from_management)
    assert authorizer.refused == set()
    objects = [one for one in yaml.safe_load_all(RIGHTS.read_text()) if one["metadata"]["name"] == PROVISIONING]
    assert {right for right in set(rights(objects)) - authorizer.asked if not right[1].startswith("*.")} == set()


async def a_cluster_comes_and_goes(client: Client, from_management: bool) -> None:
    for name in ("a", "b"):
        obj = {"apiVersion": CONFIG.api_version, "kind": CONFIG.name, "metadata": {"name": name}}
        await client.create(CONFIG.target, "default", obj)
    pools = [_pool("a", etcdRole=True, controlPlaneRole=True), _pool("b", workerRole=True, unhealthyNodeTimeout="1h")]
    spec = {"kubernetesVersion": "v1.34.1+k3s1", "rkeConfig": {"machinePools": pools}}
    obj = {"apiVersion": CLUSTER.api_version, "kind": CLUSTER.name, "metadata": {"name": "steppe"}, "spec": spec}
    await client.create(CLUSTER.target, "default", obj)
    await until(client, MACHINE_DEPLOYMENT, "steppe-b", lambda _: True)
    await client.patch(CLUSTER.target, "default", "steppe", {"spec": {"rkeConfig": {"machinePools": pools[:1]}}})
    await gone(client, MACHINE_DEPLOYMENT, "steppe-b")
    found = await until(client, CLUSTER, "steppe", lambda obj: obj["status"].get("observedGeneration", 0) > 1)
    if from_management:
        await client.delete(MANAGEMENT_CLUSTER.target, "", found["status"]["clusterName"])
    else:
        await client.delete(CLUSTER.target, "default", "steppe")
    await gone(client, CLUSTER, "steppe")
    await gone(client, CONFIG, "b")


def _pool(name: str, **more: Any) -> Json:
    return {"name": name, "quantity": 1, "machineConfigRef": {"kind": CONFIG.name, "name": name}, **more}
