"""Manifests that examples/ and the pages show are taken by a server that judges them, and nothing is ignored."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from remuda.access.definitions import definitions as access_definitions
from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.app.controllers import ADMISSION
from remuda.capi.definitions import definitions as capi_definitions
from remuda.kube.client import Client, Target
from remuda.providers import setup as providers
from remuda.providers.machine import definitions as machine_definitions
from remuda.providers.machine.options import of_driver
from remuda.providers.shared import drivers
from remuda.provisioning.definitions import definitions as provisioning_definitions
from remuda.runtime.definitions import install
from tests.controllers.engine import Json, decode
from tests.controllers.test_provisioning_admission import covers
from tests.lab import rancher_manifests
from tests.unit.test_pages import DOCS, HAND_WRITTEN, ROOT

_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMESPACES = ("fleet-default", "cattle-global-data", "team-a")
_ELSEWHERE = ("cluster.yaml", "rbac.yaml")  # what the simulator's providers bring, and rights: tested on their own
_OF_ALL = ("NodeDriver", "User", "Token")
_DRIVERS = ("existing", "nspawn", "process", "sim")  # those of rancher-machine, and amazonec2, are in the lab


def shown() -> dict[str, list[Json]]:
    found = {file.name: file.read_text() for file in (ROOT / "examples").glob("*.yaml") if file.name not in _ELSEWHERE}
    for page in HAND_WRITTEN:
        if blocks := _YAML.findall(page.read_text()):
            found[str(page.relative_to(ROOT))] = "\n---\n".join(blocks)
    objects = {name: [obj for obj in yaml.safe_load_all(text) if _is_object(obj)] for name, text in found.items()}
    return {name: manifest for name, manifest in objects.items() if manifest}


def _is_object(value: object) -> bool:
    return isinstance(value, dict) and {"apiVersion", "kind"} <= value.keys()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    server = await ApiServer.start(
        ServerSettings(data_dir=tmp_path_factory.mktemp("shown"), port=0), admission=ADMISSION
    )
    try:
        found = server.client(field_manager="test")
        own = [made for name in _DRIVERS for made in machine_definitions.of_driver(of_driver(drivers.find(name)))]
        await install(
            found,
            [
                *capi_definitions(),
                *providers.definitions(),
                *provisioning_definitions(),
                *access_definitions(),
                *rancher_manifests.definitions(),
                *own,
            ],
        )
        for name in _NAMESPACES:
            await found.create(Target("v1", "namespaces"), "", {"metadata": {"name": name}})
        yield found
    finally:
        await server.stop()


@pytest.mark.parametrize("name", shown())
@pytest.mark.asyncio(loop_scope="module")
async def test_shown_manifest_is_accepted_by_api_server(client: Client, name: str) -> None:
    for obj in shown()[name]:
        namespace = "" if obj["kind"] in _OF_ALL else obj["metadata"].get("namespace", "default")
        answer = await client.patch(
            Target(obj["apiVersion"], f"{obj['kind'].lower()}s"),
            namespace,
            obj["metadata"]["name"],
            {**obj, "metadata": {**obj["metadata"], **({"namespace": namespace} if namespace else {})}},
            kind="apply",
            field_manager="kubectl",
            dry_run=True,
        )
        stored = decode(answer)
        for key in obj.keys() - {"metadata", "stringData"}:
            assert covers(stored[key], obj[key]), f"{obj['kind']}.{key} was not taken as it is"


def test_every_driver_has_a_page_with_a_manifest() -> None:
    pages = {f"docs/drivers/{name}.md" for name in drivers.names()}
    assert pages <= set(shown())
    assert {file.name for file in (DOCS / "drivers").iterdir()} >= {Path(page).name for page in pages}
