"""From `apply` to a managed host, on hosts that are real: the manager as a process, a Machine, an agent on systemd, a
plan written by hand; and nothing left of it afterwards."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.hosts import Host, Network, groups, interfaces, machines, mounts, until
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.machines import CLUSTER, LOOK, make, nothing_is_left, ready
from tests.lab.peers import require_peer
from tests.lab.ports import free_port
from tests.lab.up import CAPI, RKE, SECRETS, Up, condition, eventually


@pytest.fixture
async def up(network: Network, tmp_path: Path) -> AsyncIterator[Up]:
    """Where hosts can reach it."""
    assets = tmp_path / "assets"
    assets.mkdir()
    server = Up("--listen", f"{network.address}:{free_port()}", "--assets", str(assets))
    try:
        server.apply(CLUSTER)
        yield server
    finally:
        for name in server.names(f"{CAPI}/machines"):  # a test that failed leaves no host behind
            server.http("DELETE", f"{CAPI}/machines/{name}")
        deadline = asyncio.get_running_loop().time() + LIMIT_SECONDS
        while machines(server.hosts) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.1)
        server.stop()


@pytest.mark.parametrize("bootstrap", ["cloud-init", "ssh"])
async def test_machine_becomes_managed_host_and_deletion_leaves_nothing(
    up: Up, network: Network, bootstrap: str
) -> None:
    spec = {"bridge": network.bridge, "subnet": str(network.subnet), "bootstrap": bootstrap}
    make(up, "nspawn", "horse", spec)
    machine = ready(up, "nspawn", "horse")
    assert machine["spec"]["providerID"].startswith("nspawn://")
    up.until(f"{CAPI}/machines", "horse", lambda obj: obj["spec"].get("providerID") == machine["spec"]["providerID"])

    said = up.follow_plan("horse", LOOK)
    hostname = next(a["address"] for a in machine["status"]["addresses"] if a["type"] == "Hostname")
    assert said == {"look": f"green on {hostname}, systemd\n"}

    opened = up.remuda("machine", "ssh", "horse", "--", "hostname", "&&", "systemctl", "is-active", "remuda-agent")
    assert (opened.returncode, opened.stdout) == (0, f"{hostname}\nactive\n"), opened.stderr
    assert up.remuda("machine", "ssh", "horse", "--", "exit", "7").returncode == 7

    assert len(machines(up.hosts)) == 1
    (folder,) = up.hosts.glob("nspawn/*")
    assert groups(folder)
    assert interfaces(network.bridge)
    up.delete(f"{CAPI}/machines", "horse")
    assert machines(up.hosts) == []
    assert mounts(up.hosts) == []
    assert interfaces(network.bridge) == set()
    assert groups(folder) == []
    assert list(up.hosts.glob("nspawn/*")) == []
    nothing_is_left(up, "horse")
    found = up.remuda("leaks")
    assert found.returncode == 0, found


async def test_host_survives_manager_kill_and_is_managed_after_restart(up: Up, network: Network) -> None:
    make(up, "nspawn", "horse", {"bridge": network.bridge, "subnet": str(network.subnet), "bootstrap": "ssh"})
    ready(up, "nspawn", "horse")
    (before,) = machines(up.hosts)
    up.kill()
    assert machines(up.hosts) == [before]
    up.start_again()
    said = up.follow_plan("horse", LOOK)
    assert said["look"].startswith("green on ")
    assert machines(up.hosts) == [before]
    up.delete(f"{CAPI}/machines", "horse")
    assert machines(up.hosts) == []


async def test_existing_server_is_adopted_cleaned_on_release_and_adopted_again(up: Up, network: Network) -> None:
    ssh_server = await network.host("pet")
    await ssh_server.run("mkdir -p /etc/pets && echo mine > /etc/pets/file")
    spec = {
        "address": ssh_server.address,
        "privateKey": ssh_server.access.private_key,
        "hostKeys": list(ssh_server.access.host_keys),
    }
    before = await _files(ssh_server)
    for turn in ("first", "second"):
        make(up, "existing", turn, spec)
        ready(up, "existing", turn)
        assert up.follow_plan(turn, LOOK) == {"look": "green on pet, systemd\n"}
        assert "active" in await ssh_server.run("systemctl is-active remuda-agent")
        found = up.remuda("machine", "ssh", turn, "--", "hostname")
        assert (found.returncode, found.stdout) == (0, "pet\n"), found.stderr
        await ssh_server.run("rm -r /etc/prairie")  # the plan's own work stays: it is the user's
        up.delete(f"{CAPI}/machines", turn)
        nothing_is_left(up, turn)
        assert "inactive" in await ssh_server.run("systemctl is-active remuda-agent", check=False)
        assert await _files(ssh_server) == before
    assert await ssh_server.run("cat /etc/pets/file") == "mine\n"
    found = up.remuda("leaks")
    assert found.returncode == 0, found


async def _files(host: Host) -> set[str]:
    """Of the places where agents and claims are kept; systemd's own state aside."""
    listed = await host.run(
        "find /etc /usr/local /var/lib /opt /root -xdev -not -path '/var/lib/systemd/*' -not -path '/var/lib/dpkg/*'"
    )
    return set(listed.splitlines())


async def _register(up: Up, host: Host, agent: str) -> str:
    """Runs the line that anybody may run who has it; the name of the Machine that this makes."""
    secret = up.until(SECRETS, "prairie-registration", lambda obj: (obj.get("data") or {}).get("command"))
    command = _decoded(secret, "command").replace("| sudo ", "| ")  # root already, where there is no sudo
    printed = await host.run(f"export REMUDA_AGENT={agent}; {command} --worker")
    eventually(lambda: up.names(f"{CAPI}/machines"), lambda: f"nobody registered: {printed}\n{up.diagnosis}")
    (name,) = up.names(f"{CAPI}/machines")
    up.until(f"{RKE}/rkebootstraps", name, lambda obj: condition(obj, "AgentConnected") == "True")
    return name


async def test_self_registered_host_applies_its_plan(up: Up, network: Network) -> None:
    host = await network.host("stranger")
    name = await _register(up, host, "remuda")
    assert up.follow_plan(name, LOOK) == {"look": "green on stranger, systemd\n"}


@pytest.mark.peer("system-agent")
async def test_upstream_system_agent_installed_by_our_script_applies_its_plan(
    up: Up, network: Network, tmp_path: Path
) -> None:
    (program,) = require_peer("system-agent")
    shutil.copy(program, tmp_path / "assets" / "rancher-system-agent-amd64")
    host = await network.host("stranger")
    name = await _register(up, host, "upstream")
    await until(host, "systemctl is-active rancher-system-agent")
    running = await host.run("sha256sum /proc/$(systemctl show -P MainPID rancher-system-agent)/exe")
    assert running.split()[0] == hashlib.sha256(program.read_bytes()).hexdigest()
    assert up.follow_plan(name, LOOK) == {"look": "green on stranger, systemd\n"}
    assert await host.run("stat -c %a /etc/prairie/grass") == "600\n"


def _decoded(secret: dict[str, Any], key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()
