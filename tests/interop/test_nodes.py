"""Hosts of a `remuda manager` on the real kube-apiserver: they reach their plan through the manager, with rights as
examples/rbac.yaml gives them, and Jobs are left to the manager by kube-controller-manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from remuda.kube import kubeconfig
from tests.lab import Upstream
from tests.lab.ports import free_port
from tests.lab.process_machines import ProcessMachines
from tests.lab.programs import Program

RIGHTS = Path(__file__).parents[2] / "examples" / "rbac.yaml"
ACCOUNT = "/api/v1/namespaces/remuda-system/serviceaccounts/remuda-manager/token"


@pytest.fixture
async def process_machines(tmp_path: Path) -> AsyncIterator[ProcessMachines]:
    server = Upstream()
    config = tmp_path / "manager.kubeconfig"
    listen = f"127.0.0.1:{free_port()}"
    command = ("-m", "remuda.cli.main", "manager", "--kubeconfig", str(config), "--nodes-listen", listen)
    manager = Program("manager", (*command, "--run-jobs", "--data-dir", str(tmp_path / "data")), tmp_path)
    try:
        kubeconfig.write(config, kubeconfig.build(server.url, ca_pem=server.ca_pem, token=token_of_the_manager(server)))
        await manager.start()
        assert await manager.prints(" leads "), manager.said
        process_machines = ProcessMachines(server, tmp_path / "data" / "hosts", lambda: manager.said)
        yield process_machines
        await asyncio.to_thread(process_machines.clear)
    finally:
        await manager.stop()
        server.stop()


def token_of_the_manager(server: Upstream) -> str:
    for obj in yaml.safe_load_all(RIGHTS.read_text()):
        group = f"/apis/{obj['apiVersion']}" if "/" in obj["apiVersion"] else f"/api/{obj['apiVersion']}"
        namespace = obj["metadata"].get("namespace")
        place = f"{group}/namespaces/{namespace}" if namespace else group
        reply = server.http("POST", f"{place}/{obj['kind'].lower()}s", obj)
        assert reply.code == 201, reply
    reply = server.http("POST", ACCOUNT, {"spec": {"expirationSeconds": 3600}})
    assert reply.code == 201, reply
    return str(reply.body["status"]["token"])


async def test_machine_becomes_managed_host_and_deletion_leaves_nothing(process_machines: ProcessMachines) -> None:
    def scenario() -> None:
        process_machines.apply_example()
        process_machines.becomes_a_host("horse")
        process_machines.follows_a_plan("horse")
        process_machines.delete_machine("horse")
        process_machines.has_nothing_left("horse")

    await asyncio.to_thread(scenario)
