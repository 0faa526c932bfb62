"""Every manifest in examples/ is applied, or refused, as its comments say, on a management plane that was just started.

Such a plane has the built-in drivers, and none of rancher-machine: a manifest brings the NodeDriver that it needs.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from click.testing import CliRunner, Result

from remuda.access.definitions import definitions as access_definitions
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app.controllers import ADMISSION
from remuda.capi.definitions import definitions as capi_definitions
from remuda.cli.main import main
from remuda.kube.client import Target
from remuda.lab.simulator.kinds import definitions as simulated_definitions
from remuda.providers import setup as providers
from remuda.providers.machine import definitions as machine_definitions
from remuda.providers.machine.options import of_driver
from remuda.providers.shared import drivers
from remuda.provisioning.definitions import definitions as provisioning_definitions
from remuda.provisioning.setup import WORKSPACES
from remuda.runtime.definitions import install
from tests.lab import commands
from tests.lab.rancher_manifests import read

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [path for path in sorted(EXAMPLES.rglob("*.yaml")) if path.parent.name != "clusterctl"]  # those are templates
NODE_DRIVERS = Target("management.cattle.io/v3", "nodedrivers")
_COMMAND = re.compile(r"^#   (\S.*)$", re.MULTILINE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    folder = tmp_path_factory.mktemp("examples")
    server = await ApiServer.start(ServerSettings(data_dir=folder, port=0), admission=ADMISSION)
    try:
        client = server.client(field_manager="test")
        own = [
            made for name in drivers.names() for made in machine_definitions.of_driver(of_driver(drivers.find(name)))
        ]
        parts = (capi_definitions(), providers.definitions(), provisioning_definitions(), access_definitions(), own)
        await install(client, [*(made for part in parts for made in part), *simulated_definitions()])
        for name in WORKSPACES:
            await client.create(Target("v1", "namespaces"), "", {"metadata": {"name": name}})
        for name in drivers.names():
            await client.create(NODE_DRIVERS, "", {"metadata": {"name": name}, "spec": {"active": True}})
        yield server.kubeconfig
    finally:
        await server.stop()


async def dry_run(path: Path, kubeconfig: Path) -> Result:
    words = ["apply", "-f", str(path), "--dry-run", "--kubeconfig", str(kubeconfig)]
    return await asyncio.to_thread(CliRunner().invoke, main, words)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
@pytest.mark.asyncio(loop_scope="module")
async def test_example_is_applied_or_refused_as_its_comments_say(kubeconfig: Path, path: Path) -> None:
    stated = read(path)
    done = await dry_run(path, kubeconfig)
    assert done.exit_code == (1 if stated.refused else 0), done.output
    for sentence in stated.refused:
        assert sentence in done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == len(stated.warned), warnings
    for sentence in stated.warned:
        assert any(sentence in line for line in warnings)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_example_names_the_commands_that_apply_it(path: Path) -> None:
    lines = _COMMAND.findall(path.read_text())
    own = str(path.relative_to(EXAMPLES.parent))
    assert path.name == "rbac.yaml" or any(f"-f {own}" in line for line in lines)
    for line in lines:
        if words := commands.words(line.split("    ")[0]):
            commands.check(" ".join(["remuda", *words]))


def test_examples_share_no_cluster_name() -> None:
    found = [obj for path in FILES for obj in yaml.safe_load_all(path.read_text()) if obj["kind"] == "Cluster"]
    names = Counter(obj["metadata"]["name"] for obj in found)
    assert [name for name, count in names.items() if count > 1] == []
