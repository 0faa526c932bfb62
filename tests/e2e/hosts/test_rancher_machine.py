"""The real rancher-machine: drivers' kinds from its own flags, and a host provisioned by it through a Job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.hosts import Network
from tests.lab.machines import CLUSTER, LOOK, make, nothing_is_left, ready
from tests.lab.peers import require_peer
from tests.lab.ports import free_port
from tests.lab.up import CAPI, DRIVERS, Up, condition

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
async def up(network: Network, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Up]:
    (program,) = require_peer("rancher-machine")
    monkeypatch.setenv("REMUDA_RANCHER_MACHINE", str(program))
    server = Up("--listen", f"{network.address}:{free_port()}")
    try:
        server.apply(CLUSTER)
        yield server
    finally:
        server.stop()


def register(up: Up, name: str, url: str = "local://", **annotations: str) -> None:
    driver = {
        "apiVersion": "management.cattle.io/v3",
        "kind": "NodeDriver",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"displayName": name, "url": url, "active": True},
    }
    reply = up.http("POST", DRIVERS, driver)
    assert reply.code == 201, reply
    up.until(DRIVERS, name, lambda obj: condition(obj, "Active") == "True")


def schema(up: Up, name: str) -> dict[str, Any]:
    reply = up.http("GET", f"{_DEFINITIONS}/{name}")
    assert reply.code == 200, reply
    (version,) = reply.body["spec"]["versions"]
    return dict(version["schema"]["openAPIV3Schema"]["properties"])


async def test_driver_kinds_are_generated_from_rancher_machine_flags(up: Up) -> None:
    register(up, "digitalocean")
    config = schema(up, "digitaloceanconfigs.rke-machine-config.cattle.io")
    assert config["size"] == {"type": "string", "description": "Digital Ocean size", "default": "s-1vcpu-1gb"}
    assert config["backups"]["type"] == "boolean"
    assert config["accessToken"]["format"] == "password"
    assert {"region", "image", "tags", "sshUser", "userdata"} <= set(config)
    machine = schema(up, "digitaloceanmachines.rke-machine.cattle.io")
    assert {"size", "common", "providerID"} <= set(machine["spec"]["properties"])
    template = schema(up, "digitaloceanmachinetemplates.rke-machine.cattle.io")
    fields = template["spec"]["properties"]["template"]["properties"]["spec"]["properties"]
    assert {"size", "common"} <= set(fields)


async def test_third_party_plugin_adds_its_driver_kinds(up: Up) -> None:
    """The one for Linode is not to be had from here; this one, for VMware, is made the same way."""
    (plugin,) = require_peer("machine-plugin")
    register(up, "vmware", url=str(plugin))
    config = schema(up, "vmwareconfigs.rke-machine-config.cattle.io")
    assert {"cpuCount", "memorySize", "sshUser", "networkType"} <= set(config)


async def test_generic_driver_provisions_host_through_job(up: Up, network: Network, tmp_path: Path) -> None:
    host = await network.host("pet")
    await host.run("rm -rf /var/lib/apt/lists/*")  # it wants curl installed: the one that is there is the newest known
    register(up, "generic", **{"nodedriver.cattle.io/file-to-field-aliases": "sshKey:sshKey"})
    make(up, "generic", "steed", {"ipAddress": host.address, "sshUser": "root", "sshKey": host.access.private_key})
    machine = ready(up, "generic", "steed")
    assert machine["spec"]["providerID"] == "generic://steed"
    assert {"type": "ExternalIP", "address": host.address} in machine["status"]["addresses"]
    assert up.follow_plan("steed", LOOK)["look"].endswith("systemd\n")
    opened = up.remuda("machine", "ssh", "steed", "--", "systemctl", "is-active", "remuda-agent")
    assert (opened.returncode, opened.stdout) == (0, "active\n"), opened.stderr
    up.delete(f"{CAPI}/machines", "steed")
    nothing_is_left(up, "steed")
    assert list(up.hosts.glob("rancher-machine/*")) == []
