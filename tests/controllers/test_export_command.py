"""`remuda export cluster`: a manifest that matches what runs, and makes the same cluster again."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest_asyncio

from remuda.capi.types import MACHINE
from remuda.cli import manifest_files
from remuda.kube.core import SECRETS
from remuda.kube.objects import Kind
from remuda.providers.controlplane.referenced_objects import CONFIG_MAP
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine, Json
from tests.controllers.program import remuda
from tests.controllers.provisioning_harness import CONFIG, ProvisioningHarness, pool

AUTHORIZED = {"rke.cattle.io/object-authorized-for-clusters": "prairie"}


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ProvisioningHarness:
    """With a cluster that uses two Configs, a credential, a ConfigMap and a Secret; nobody is at work any more."""
    found = await ProvisioningHarness.create(engine)
    await found.config("servers", zone="a")
    await found.config("workers")
    await found.credential("cloud")
    for target, kind, name in ((CONFIG_MAP.target, "ConfigMap", "motd"), (SECRETS, "Secret", "keys")):
        metadata = {"name": name, "annotations": AUTHORIZED}
        data = {"motd": "hello"} if kind == "ConfigMap" else {"key": "c2VjcmV0"}
        body = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data}
        await engine.create(target, found.namespace, body)
    sources = [
        {"configMap": {"name": "motd", "items": [{"key": "motd", "path": "/etc/motd"}]}},
        {"secret": {"name": "keys", "items": [{"key": "key", "path": "/etc/key"}]}},
    ]
    async with found.running():
        await found.cluster(
            pool("servers", cloudCredentialSecretName="cloud"),
            pool("workers", workerRole=True, quantity=2, labels={"tier": "web"}),
            annotations={"example.com/owner": "team-a"},
            machineGlobalConfig={"kubelet-arg": ["max-pods=50"]},
            machineSelectorFiles=[{"fileSources": sources}],
        )
        await found.made()
        await found.machines(3)
        await found.settled()
    return found


def content(obj: Json) -> Json:
    """The fields that a user declares."""
    made = {name: value for name, value in deepcopy(obj).items() if name not in ("metadata", "status")}
    return {**made, "name": obj["metadata"]["name"], "labels": obj["metadata"].get("labels")}


async def test_exported_manifest_changes_nothing_and_recreates_the_cluster(
    harness: ProvisioningHarness, tmp_path: Path
) -> None:
    engine, namespace = harness.engine, harness.namespace
    path = tmp_path / "prairie.yaml"
    done = await remuda(engine, "export", "cluster", "prairie", "-n", namespace)
    assert done.code == 0, done.err
    path.write_text(done.out)

    objects = manifest_files.read([path])
    assert [obj["kind"] for obj in objects] == ["SimConfig", "SimConfig", "ConfigMap", "Cluster"]
    for obj in objects:
        assert obj["metadata"].keys() <= {"name", "namespace", "annotations"}
        assert "status" not in obj
    assert objects[-1]["metadata"]["annotations"] == {"example.com/owner": "team-a"}

    for text in (done.out, done.err):
        assert f"Secret {namespace}/cloud, for spec.rkeConfig.machinePools[0].cloudCredentialSecretName" in text
        assert f"Secret {namespace}/keys, for spec.rkeConfig.machineSelectorFiles[0].fileSources[1]" in text
        assert "c2VjcmV0" not in text
        assert "t0ken" not in text

    planned = await remuda(engine, "plan", "-f", path, "-o", "json")
    assert planned.code == 0, planned.err
    assert set(steps(planned.out)) == {"keep"}
    applied = await remuda(engine, "apply", "-f", path)
    assert applied.code == 0, applied.err
    assert [line.rpartition(" ")[2] for line in applied.out.splitlines()] == ["unchanged"] * 4

    before = [content(await harness.get(kind, name)) for kind, name in _declared()]
    async with harness.running():
        await harness.delete()
        await harness.nothing_left()
        assert (await remuda(engine, "apply", "-f", path)).code == 0
        await harness.made()
        await harness.machines(3)
    assert [content(await harness.get(kind, name)) for kind, name in _declared()] == before
    assert len(await harness.names(MACHINE)) == 3


def _declared() -> list[tuple[Kind[Any], str]]:
    return [(CLUSTER, "prairie"), (CONFIG, "servers"), (CONFIG, "workers")]


def steps(text: str) -> list[str]:
    (found,) = json.loads(text)
    return [step["action"] for step in found["steps"]]


async def test_export_names_what_it_cannot_read_and_secrets_in_the_manifest(harness: ProvisioningHarness) -> None:
    engine, namespace = harness.engine, harness.namespace
    await engine.delete(CONFIG_MAP.target, namespace, "motd")
    await harness.edit(pool("servers"), machineGlobalConfig={"agent-token": "hush"})
    done = await remuda(engine, "export", "cluster", "prairie", "-n", namespace)
    assert done.code == 0
    assert f"ConfigMap {namespace}/motd" in done.err
    assert "keep it private: Cluster prairie: spec.rkeConfig.machineGlobalConfig.agent-token" in done.err
    assert "hush" not in done.err
    gone = await remuda(engine, "export", "cluster", "meadow", "-n", namespace)
    assert (gone.code, gone.out, "cluster meadow not found" in gone.err) == (1, "", True)
