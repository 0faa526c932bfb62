"""The tunnel's client is delivered by either agent: the very files and instruction of a plan, on a host in a folder."""

from __future__ import annotations

import base64
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.providers.bootstrap.assets import agent_zipapp
from remuda.providers.controlplane.render import plan as plans
from tests.interop.system_agent.conftest import Host
from tests.interop.system_agent.test_periodic import ran, records, text
from tests.lab import certificates
from tests.unit.providers.controlplane.distros.test_tunnel_script import (
    FOLDER,
    PROGRAM,
    RUNS,
    STARTED,
    UNIT,
    Node,
    Served,
    planned,
    tunnelled,
)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "service"
    folder.mkdir()
    served = Served(certificates.Authority("manager"), folder)
    served.program(agent_zipapp())
    yield served
    served.stop()


def of_the_tunnel(node: Node) -> dict[str, Any]:
    """What a plan has of it, with all paths below the folder of the host."""
    whole = plans.read(planned(tunnelled()))
    files = [
        {
            "path": str(node.path(file.path)),
            "content": base64.b64encode(file.content).decode(),
            "permissions": file.permissions,
        }
        for file in whole.files
        if "/capr/" in file.path
    ]
    (keep,) = (one for one in whole.periodic if one.name == "tunnel")
    here = {"HOST": node.root, "REMUDA_HOST_ROOT": node.root, "REMUDA_PYTHON": sys.executable}
    instruction = {
        "name": keep.name,
        "command": keep.command,
        "args": ["-c", f"PATH={node.bin}:$PATH\n{keep.args[1]}"],
        "env": [*keep.env, *(f"{name}={value}" for name, value in here.items())],
        "periodSeconds": 1,
    }
    return {"files": files, "instructions": [], "periodicInstructions": [instruction]}


def test_plan_installs_tunnel_and_starts_service_once(host: Host, manager: Served, tmp_path: Path) -> None:
    node = Node(tmp_path / "host")
    node.connect(manager.url, manager.authority)
    host.give(of_the_tunnel(node))
    found = records(host.wait(ran("tunnel"), "it has run"))["tunnel"]
    assert (text(found["stdout"]).decode(), found["exitCode"]) == (RUNS, 0)
    host.settle(10)
    assert node.asked_of_systemd() == STARTED
    assert manager.asked == [f"{PROGRAM}.sha256", PROGRAM]
    assert node.path(f"{FOLDER}/remuda-tunnel.pyz").read_bytes() == agent_zipapp()
    assert stat.S_IMODE(node.path(f"{FOLDER}/token").stat().st_mode) == 0o600
    assert "remuda-tunnel.pyz" in node.path(UNIT).read_text()
