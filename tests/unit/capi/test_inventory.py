"""What clusterctl is shown, on the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.capi import names
from remuda.capi.inventory import CORE, MACHINE_POOL, NAMESPACE, NOTE, PROVIDER, ProviderEntry, install
from remuda.kube.errors import StatusError
from remuda.runtime.definitions import INSTALL
from tests.unit.apiserver.engine import CRDS, Engine, loads

Json = dict[str, Any]
OTHER = ProviderEntry("InfrastructureProvider", "other", "v0.3.0")


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data")
    yield engine
    await engine.close()


async def noted(engine: Engine) -> dict[str, str]:
    listing = await engine.client.list(PROVIDER.target)
    return {found.metadata.name: found.version for found in map(PROVIDER.decode, listing.items)}


@pytest.mark.parametrize(
    ("entry", "label"),
    [
        (CORE, "cluster-api"),
        (OTHER, "infrastructure-other"),
        (ProviderEntry("BootstrapProvider", "x", "v1.0.0"), "bootstrap-x"),
        (ProviderEntry("ControlPlaneProvider", "x", "v1.0.0"), "control-plane-x"),
    ],
)
def test_inventory_entry_label_follows_provider_type(entry: ProviderEntry, label: str) -> None:
    assert entry.label == label


async def test_provider_is_recorded_as_clusterctl_does(engine: Engine) -> None:
    await install(engine.client, CORE, OTHER)
    core: Json = loads(await engine.client.get(PROVIDER.target, NAMESPACE, "cluster-api"))
    assert (core["type"], core["providerName"], core["version"]) == ("CoreProvider", "cluster-api", CORE.version)
    assert (
        core["metadata"]["labels"].items()
        >= {
            names.CLUSTERCTL: "",
            names.PROVIDER: "cluster-api",
            "clusterctl.cluster.x-k8s.io/core": "inventory",
        }.items()
    )
    assert await noted(engine) == {"cluster-api": CORE.version, "infrastructure-other": "v0.3.0"}


async def test_recording_provider_again_writes_nothing(engine: Engine) -> None:
    await install(engine.client, CORE)
    before = (NOTE.taken, INSTALL.taken)
    await install(engine.client, CORE)
    assert (NOTE.taken, INSTALL.taken) == before


async def test_new_provider_version_is_recorded(engine: Engine) -> None:
    await install(engine.client, OTHER)
    await install(engine.client, OTHER._replace(version="v0.4.0"))
    assert await noted(engine) == {"infrastructure-other": "v0.4.0"}


async def test_foreign_provider_record_is_kept(engine: Engine) -> None:
    await install(engine.client, OTHER)
    await engine.namespace("capi-system")
    theirs = {
        "metadata": {"name": "cluster-api"},
        "type": "CoreProvider",
        "providerName": "cluster-api",
        "version": "v1.9.0",
    }
    await engine.client.create(PROVIDER.target, "capi-system", theirs)
    await install(engine.client, CORE)
    assert await noted(engine) == {"cluster-api": "v1.9.0", "infrastructure-other": "v0.3.0"}


async def test_foreign_provider_definition_is_kept(engine: Engine) -> None:
    await install(engine.client, OTHER)
    name = f"providers.{PROVIDER.group}"
    unmarked = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None, "theirs": "yes"}}}
    changed = {"spec": {"names": {"shortNames": ["prov"]}}}
    theirs = loads(await engine.client.patch(CRDS, "", name, unmarked | changed))
    await install(engine.client, CORE)
    assert loads(await engine.client.get(CRDS, "", name))["spec"] == theirs["spec"]
    assert await noted(engine) == {"cluster-api": CORE.version, "infrastructure-other": "v0.3.0"}


async def test_machine_pool_definition_is_not_installed_without_own_core(engine: Engine) -> None:
    await install(engine.client, OTHER)
    with pytest.raises(StatusError, match="could not find the requested resource"):
        await engine.client.list(MACHINE_POOL.target, "default")


async def test_machine_pools_can_be_listed_but_not_created(engine: Engine) -> None:
    await install(engine.client, CORE)
    assert (await engine.client.list(MACHINE_POOL.target, "default")).items == []
    for spec in ({}, {"clusterName": "c", "replicas": 3}):
        with pytest.raises(StatusError, match="MachinePools are not supported: use a MachineDeployment"):
            await engine.client.create(MACHINE_POOL.target, "default", {"metadata": {"name": "p"}, "spec": spec})
    with pytest.raises(StatusError, match="spec"):
        await engine.client.create(MACHINE_POOL.target, "default", {"metadata": {"name": "p"}})
