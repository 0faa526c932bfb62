"""Manifests as people write them for Rancher: taken as they are, or refused in the words they state themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest
import pytest_asyncio

from remuda.kube.client import Target
from remuda.kube.errors import AlreadyExists, StatusError
from remuda.providers import setup as providers
from remuda.provisioning import definitions as provisioning_definitions
from remuda.provisioning.preview_loader import Previews
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import NAMESPACES, Engine, Json, decode
from tests.lab import rancher_manifests as manifests
from tests.lab.rancher_manifests import MANIFESTS, Manifest, target

NODE_DRIVERS = Target("management.cattle.io/v3", "nodedrivers")
SHARED = "cattle-global-data"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def own_namespace(engine: Engine) -> AsyncIterator[str]:
    """A namespace on an engine that knows the drivers of the manifests."""
    await engine.install([*providers.definitions(), *provisioning_definitions.definitions(), *manifests.definitions()])
    for obj in manifests.node_drivers():
        await _make(engine, NODE_DRIVERS, "", obj)
    await _make(engine, NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHARED}})
    yield await engine.namespace()
    for obj in manifests.node_drivers():
        await engine.delete(NODE_DRIVERS, "", obj["metadata"]["name"])


async def _make(engine: Engine, where: Target, namespace: str, obj: Json) -> None:
    with contextlib.suppress(AlreadyExists):
        await engine.create(where, namespace, obj)


def moved(obj: Json, namespace: str) -> Json:
    """Into the namespace of the test."""
    made = deepcopy(obj)
    if made["metadata"]["namespace"] != SHARED:
        made["metadata"]["namespace"] = namespace
    return made


async def refusal(engine: Engine, obj: Json, **how: Any) -> str:
    with pytest.raises(StatusError) as caught:
        await engine.client.create(CLUSTER.target, obj["metadata"]["namespace"], obj, **how)
    return caught.value.message


@pytest.mark.parametrize("manifest", [each for each in MANIFESTS if not each.refused], ids=lambda each: each.name)
async def test_valid_manifest_is_stored_without_pruned_fields(
    engine: Engine, own_namespace: str, manifest: Manifest
) -> None:
    """And nothing of it is lost on the way: what the server would prune would be ignored in silence."""
    for obj in (moved(each, own_namespace) for each in manifest.objects):
        namespace = obj["metadata"]["namespace"]
        if obj["kind"] in ("Secret", "ConfigMap"):
            await _make(engine, target(obj), namespace, obj)
            continue
        given = deepcopy(obj)
        made = await engine.client.patch(
            target(obj), namespace, obj["metadata"]["name"], obj, kind="apply", field_manager="kubectl", dry_run=True
        )
        stored = decode(made)
        for key in given.keys() - {"metadata"}:
            assert covers(stored[key], given[key]), key


def covers(present: Any, given: Any) -> bool:
    """Everything that was given and is not null is there."""
    if isinstance(given, dict):
        return all(
            value is None or (isinstance(present, dict) and key in present and covers(present[key], value))
            for key, value in given.items()
        )
    if isinstance(given, list):
        return len(present) == len(given) and all(map(covers, present, given))
    return bool(present == given)


@pytest.mark.parametrize(
    "manifest",
    [each for each in MANIFESTS if not each.refused and not each.warned],
    ids=lambda each: each.name,
)
async def test_preview_of_manifest_creates_every_requested_machine(
    engine: Engine, own_namespace: str, manifest: Manifest
) -> None:
    """Every machine it asks for, and nothing that is missing."""
    (found,) = await Previews(engine.client, [moved(obj, own_namespace) for obj in manifest.objects]).make()
    pools = manifest.cluster["spec"]["rkeConfig"].get("machinePools", [])
    assert found.new
    assert [step.action for step in found.steps] == ["create"] * sum(pool["quantity"] for pool in pools)
    assert {step.pool for step in found.steps} == {pool["name"] for pool in pools}
    assert [wait for wait in found.waits if "another namespace" not in wait] == []


@pytest.mark.parametrize("manifest", [each for each in MANIFESTS if each.refused], ids=lambda each: each.name)
async def test_invalid_manifest_is_rejected_with_stated_messages(
    engine: Engine, own_namespace: str, manifest: Manifest
) -> None:
    said = await refusal(engine, moved(manifest.cluster, own_namespace), dry_run=True)
    assert [words for words in manifest.refused if words not in said] == []


async def test_kubernetes_version_can_only_move_forward(engine: Engine, own_namespace: str) -> None:
    (custom,) = (each for each in MANIFESTS if each.name == "k3s-custom-minimal")
    obj = moved(custom.cluster, own_namespace)
    await engine.create(CLUSTER.target, own_namespace, obj)
    name = obj["metadata"]["name"]
    for version, words in (
        ("v1.35.9+k3s1", "is a downgrade"),
        ("v1.38.0+k3s1", "skips a minor version"),
        ("v1.36.2+rke2r1", "cannot change the distribution of a cluster from k3s to rke2"),
        ("newest", "not a version of a distribution"),
    ):
        with pytest.raises(StatusError, match=words):
            await engine.patch(CLUSTER.target, own_namespace, name, {"spec": {"kubernetesVersion": version}})
    found = await engine.patch(CLUSTER.target, own_namespace, name, {"spec": {"kubernetesVersion": "v1.37.0+k3s1"}})
    assert found["spec"]["kubernetesVersion"] == "v1.37.0+k3s1"
    await engine.delete(CLUSTER.target, own_namespace, name)


async def test_null_fields_are_accepted(engine: Engine, own_namespace: str) -> None:
    (orchard,) = (each for each in MANIFESTS if each.name == "rke2-amazonec2")
    spec = orchard.cluster["spec"]
    assert spec["rkeConfig"]["additionalManifest"] is None
    assert spec["rkeConfig"]["machinePools"][0]["dynamicSchemaSpec"] is None
    obj = moved(orchard.cluster, own_namespace)
    await engine.client.create(CLUSTER.target, own_namespace, obj, dry_run=True)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"autoscalingMinSize": 1}, "autoscalingMaxSize, or neither"),
        ({"autoscalingMinSize": 3, "autoscalingMaxSize": 2}, "autoscalingMaxSize"),
        ({"autoscalingMinSize": 0, "autoscalingMaxSize": 2}, "must be more than 0 for etcd and control plane pools"),
    ],
)
async def test_autoscaling_fields_are_validated(engine: Engine, own_namespace: str, sizes: Json, words: str) -> None:
    (jetty,) = (each for each in MANIFESTS if each.name == "k3s-digitalocean")
    obj = moved(jetty.cluster, own_namespace)
    obj["spec"]["rkeConfig"]["machinePools"][0] |= sizes
    assert words in await refusal(engine, obj)


async def test_concurrent_admissions_do_not_block_event_loop(engine: Engine, own_namespace: str) -> None:
    """The guard of the loop judges it."""
    (orchard,) = (each for each in MANIFESTS if each.name == "rke2-amazonec2")
    obj = moved(orchard.cluster, own_namespace)
    await asyncio.gather(
        *(engine.client.create(CLUSTER.target, own_namespace, deepcopy(obj), dry_run=True) for _ in range(20))
    )
