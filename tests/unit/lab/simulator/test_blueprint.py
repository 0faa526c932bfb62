"""The objects of a simulated cluster, as a server takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.capi import admission
from remuda.capi.definitions import definitions as core_definitions
from remuda.kube.client import Client
from remuda.lab.simulator.blueprint import Blueprint
from remuda.lab.simulator.kinds import FAMILIES, Family, definitions
from remuda.lab.simulator.types import MachineScript
from remuda.runtime.definitions import install


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    settings = ServerSettings(data_dir=tmp_path, port=0, volatile=True)
    server = await ApiServer.start(settings, admission=admission.FUNCTIONS)
    await install(server.client(), [*core_definitions(), *definitions()])
    yield server.client()
    await server.stop()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.contract)
async def test_api_server_stores_blueprint_objects_unchanged(client: Client, family: Family) -> None:
    blueprint = Blueprint(name="c", control_planes=3, workers=2, family=family, machines=MachineScript(boot_seconds=1))
    for target, obj in blueprint.objects():
        made = msgspec.json.decode(await client.create(target, "default", obj))
        asked = obj["spec"]
        kept = {name: made["spec"].get(name) for name in asked if name != "selector"}
        if obj["kind"] == "MachineDeployment":
            assert kept["template"]["spec"]["infrastructureRef"] == asked["template"]["spec"]["infrastructureRef"]
        else:
            assert kept == asked


def test_blueprint_without_workers_has_no_machine_deployment() -> None:
    assert [item.obj["kind"] for item in Blueprint(name="c").objects()] == [
        "SimulatedCluster",
        "SimulatedMachineTemplate",
        "SimulatedControlPlane",
        "Cluster",
    ]


def test_blueprint_workers_can_have_their_own_script() -> None:
    slow = MachineScript(boot_seconds=60)
    items = Blueprint(name="c", workers=1, worker_machines=slow).objects()
    scripts = {
        item.obj["metadata"]["name"]: item.obj["spec"]["template"]["spec"]["script"]
        for item in items
        if item.obj["kind"] == "SimulatedMachineTemplate"
    }
    assert scripts == {"c-control-plane": {}, "c-workers": {"bootSeconds": 60.0}}
