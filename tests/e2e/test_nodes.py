"""Hosts that somebody made: one line, pasted into a shell, registers them; and the same line again changes nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.custom_hosts import CustomHost
from tests.lab.machines import CLUSTER
from tests.lab.ours import Ours
from tests.lab.process_machines import CAPI, RKE, SECRETS, ProcessMachines, condition
from tests.lab.server import tail


class Up(Ours):
    command = "up"


@pytest.fixture
def process_machines(tmp_path: Path) -> Iterator[ProcessMachines]:
    up = Up()
    try:
        yield ProcessMachines(up, tmp_path / "root", lambda: tail(up.log, 40))
    finally:
        up.stop()


@pytest.fixture
def host(tmp_path: Path, process_machines: ProcessMachines) -> Iterator[CustomHost]:
    host = CustomHost(tmp_path)
    try:
        yield host
    finally:
        host.uninstall()


def command(process_machines: ProcessMachines) -> str:
    for obj in yaml.safe_load_all(CLUSTER):
        path = f"/apis/{obj['apiVersion']}/namespaces/default/{obj['kind'].lower()}s"
        assert process_machines.server.http("POST", path, json.dumps(obj)).code == 201
    secret = process_machines.until(SECRETS, "prairie-registration", lambda obj: "command" in (obj.get("data") or {}))
    return base64.b64decode(secret["data"]["command"]).decode()


def test_registration_command_is_idempotent_and_host_applies_its_plan(
    process_machines: ProcessMachines, host: CustomHost
) -> None:
    line = command(process_machines)
    for _ in range(2):
        done = host.run(f"{line} --worker --label color=bay")
        assert done.returncode == 0, done
        (machine,) = process_machines.items(f"{CAPI}/machines")
    name = machine["metadata"]["name"]
    assert name.startswith("custom-")
    assert machine["metadata"]["labels"]["rke.cattle.io/worker-role"] == "true"
    process_machines.until(f"{RKE}/rkebootstraps", name, lambda obj: condition(obj, "AgentConnected") == "True")
    process_machines.follows_a_plan(name)
    host.uninstall()
    process_machines.eventually(lambda: not process_machines.processes(), "processes are left")


def test_registration_with_invalid_token_fails_without_leaking_token(
    process_machines: ProcessMachines, host: CustomHost
) -> None:
    line = command(process_machines)
    token = line.partition("--token ")[2].split()[0]
    done = host.run(f"{line.replace(token, token[:-4] + 'AAAA')} --worker", retries=5)
    assert done.returncode != 0
    assert "token" in done.stdout + done.stderr
    assert token[:-4] not in done.stdout + done.stderr
    assert process_machines.items(f"{CAPI}/machines") == []
    assert process_machines.processes() == []


def test_registration_rejects_server_with_wrong_ca_checksum(
    process_machines: ProcessMachines, host: CustomHost
) -> None:
    line = command(process_machines)
    checksum = line.rpartition("--ca-checksum ")[2].split()[0]
    done = host.run(f"{line.replace(checksum, '0' * 64)} --worker")
    assert done.returncode != 0
    assert "did NOT match" in done.stderr
    assert list(host.root.iterdir()) == []
