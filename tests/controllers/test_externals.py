"""Provider objects by reference, on an engine: versions from labels, watches that wire themselves, clones."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from remuda.capi import contract, names
from remuda.capi.external import DEFINITION, Externals, UnknownKind, UnlabelledKind
from remuda.capi.types import CLUSTER, Cluster
from remuda.capi.types.shared import Reference
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key, OwnerReference
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Outcome, Retryable
from tests.controllers.engine import PATIENCE_SECONDS, Engine
from tests.controllers.providers import INFRASTRUCTURE, NEW, OLD, PROVIDERS, Provider, ProviderKind


def reference(kind: ProviderKind, name: str) -> Reference:
    return Reference(api_group=kind.group, kind=kind.name, name=name)


class ReferenceReader:
    """A controller that looks up what each Cluster refers to, and remembers what it saw."""

    def __init__(self, manager: Manager) -> None:
        self.externals = Externals(manager.caches, manager.client)
        self._clusters = manager.caches.of(CLUSTER)
        self._seen: list[str] = []
        self._news = asyncio.Event()
        controller = manager.controller("looker", CLUSTER, self.reconcile, interval=0.0)
        self.externals.follow(controller, CLUSTER, lambda cluster: [cluster.spec.infrastructure_ref])

    async def reconcile(self, key: Key) -> Outcome:
        cluster: Cluster | None = self._clusters.get(*key)
        if cluster is not None and cluster.spec.infrastructure_ref is not None:
            self._saw(await self._look(cluster.spec.infrastructure_ref, key.namespace))
        return DONE

    async def _look(self, ref: Reference, namespace: str) -> str:
        try:
            found = await self.externals.get(ref, namespace)
        except UnknownKind:
            return "no kind"
        except UnlabelledKind:
            return "no label"
        if found is None:
            return "nothing"
        return f"{found.contract} {found.target.version} {found.raw.get('spec', {}).get('size', '-')}"

    def _saw(self, what: str) -> None:
        self._seen.append(what)
        self._news.set()

    async def sees(self, what: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while what not in self._seen:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def reading(engine: Engine, namespace: str) -> AsyncIterator[ReferenceReader]:
    readers: list[ReferenceReader] = []
    async with engine.running(namespace, lambda manager: readers.append(ReferenceReader(manager))):
        yield readers[0]


async def cluster(engine: Engine, namespace: str, kind: ProviderKind, name: str) -> OwnerReference:
    spec = {"infrastructureRef": kind.reference(name)}
    obj = {"apiVersion": names.API_VERSION, "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
    made = await engine.create(CLUSTER.target, namespace, obj)
    return OwnerReference(api_version=names.API_VERSION, kind="Cluster", name=name, uid=made["metadata"]["uid"])


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.contract)
async def test_provider_object_create_update_and_delete_are_observed(engine: Engine, provider: Provider) -> None:
    await engine.install(provider.definitions())
    namespace = await engine.namespace()
    await cluster(engine, namespace, provider.cluster, "c")
    spoken = f"{provider.contract} {provider.cluster.version}"
    async with reading(engine, namespace) as reader:
        await reader.sees("nothing")
        await engine.create(provider.cluster.target, namespace, provider.cluster.object("c", {"size": 1}))
        await reader.sees(f"{spoken} 1")
        await engine.patch(provider.cluster.target, namespace, "c", {"spec": {"size": 2}})
        await reader.sees(f"{spoken} 2")
        reader._seen.clear()
        await engine.delete(provider.cluster.target, namespace, "c")
        await reader.sees("nothing")


async def test_late_definition_and_contract_label_are_observed(engine: Engine) -> None:
    kind = ProviderKind(INFRASTRUCTURE, "LateCluster", "v1beta2")
    namespace = await engine.namespace()
    await cluster(engine, namespace, kind, "late")
    async with reading(engine, namespace) as reader:
        await reader.sees("no kind")
        unlabelled = kind.definition()
        del unlabelled["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"]
        await engine.install([unlabelled])
        await engine.create(kind.target, namespace, kind.object("late", {"size": 3}))
        await reader.sees("no label")
        await engine.install([kind.definition()])
        await reader.sees("v1beta2 v1 3")
        await engine.delete(DEFINITION.target, "", f"{kind.plural}.{kind.group}")
        reader._seen.clear()
        await reader.sees("no kind")
        assert await reader.externals.fetch(reference(kind, "late"), namespace) is None


async def test_fetch_reads_object_from_server(engine: Engine) -> None:
    await engine.install(NEW.definitions())
    namespace = await engine.namespace()
    await engine.create(NEW.machine.target, namespace, NEW.machine.object("m"))
    async with reading(engine, namespace) as reader:
        assert await reader.externals.fetch(reference(NEW.machine, "missing"), namespace) is None
        found = await reader.externals.fetch(reference(NEW.machine, "m"), namespace)
        assert found is not None
        assert str(found) == f"NewMachine {namespace}/m"


async def test_delete_is_requested_once(engine: Engine) -> None:
    await engine.install(NEW.definitions())
    namespace = await engine.namespace()
    made = NEW.machine.object("m", finalizers=["example.com/hold"])
    await engine.create(NEW.machine.target, namespace, made)
    async with reading(engine, namespace) as reader:
        ref = reference(NEW.machine, "m")
        found = await reader.externals.fetch(ref, namespace)
        assert found is not None
        assert await reader.externals.delete(found)
        again = await reader.externals.fetch(ref, namespace)
        assert again is not None
        assert not await reader.externals.delete(again)
        await engine.patch(NEW.machine.target, namespace, "m", {"metadata": {"finalizers": None}})
        await engine.gone(NEW.machine.target, namespace, "m")
        assert await reader.externals.delete(found), "gone meanwhile is as good"


async def _template(
    reader: ReferenceReader, engine: Engine, namespace: str, provider: Provider
) -> contract.ProviderObject:
    kind = provider.machine.template
    metadata = {
        "labels": {"from": "template", "size": "small"},
        "annotations": {"note": "kept", names.CONVERSION_DATA: "{}", names.LAST_APPLIED: "{}"},
    }
    spec = {"template": {"metadata": metadata, "spec": {"image": "debian", "disks": [{"gb": 10}]}}}
    await engine.create(kind.target, namespace, kind.object("t", spec))
    found = await reader.externals.fetch(reference(kind, "t"), namespace)
    assert found is not None
    return found


@pytest.mark.parametrize("provider", [NEW, OLD], ids=lambda provider: provider.contract)
async def test_clone_has_template_metadata_and_is_created_once(engine: Engine, provider: Provider) -> None:
    await engine.install(provider.definitions())
    namespace = await engine.namespace()
    async with reading(engine, namespace) as reader:
        template = await _template(reader, engine, namespace, provider)
        owner = await cluster(engine, namespace, provider.cluster, "owner")
        stranger = await cluster(engine, namespace, provider.cluster, "stranger")

        async def clone(owner: OwnerReference) -> contract.ProviderObject:
            return await reader.externals.clone(
                template, name="m", owner=owner, labels={"size": "big"}, annotations={"by": "caller"}
            )

        made = await clone(owner)
        assert made.target == provider.machine.target
        assert made.raw["kind"] == provider.machine.name
        assert made.raw["spec"] == {"image": "debian", "disks": [{"gb": 10}]}
        assert dict(made.metadata.labels) == {"from": "template", "size": "big"}
        assert dict(made.metadata.annotations) == {
            "note": "kept",
            "by": "caller",
            names.CLONED_FROM_NAME: "t",
            names.CLONED_FROM_GROUP_KIND: f"{provider.machine.name}Template.{INFRASTRUCTURE}",
        }
        assert [one.uid for one in made.metadata.owner_references] == [owner.uid]
        assert (await clone(owner)).metadata.uid == made.metadata.uid
        cached = await reader.externals.get(reference(provider.machine, "m"), namespace)
        assert cached is not None, "our own write is seen at once"
        with pytest.raises(Retryable, match="already exists and does not belong to Cluster stranger"):
            await clone(stranger)


async def test_watch_ends_after_definition_is_deleted(engine: Engine) -> None:
    """As the real API server does it: whoever watched finds out that there is nothing to be watched any more."""
    kind = ProviderKind("goes.example", f"Tent{secrets.token_hex(3)}", "v1beta2")
    definition = kind.definition()
    await engine.install([definition])
    namespace = await engine.namespace()
    await engine.create(
        kind.target,
        namespace,
        {"apiVersion": kind.target.api_version, "kind": kind.name, "metadata": {"name": "a"}, "spec": {}},
    )
    listing = await engine.client.list(kind.target, namespace)
    seen: list[str] = []

    async def follow() -> None:
        changes = engine.client.watch(kind.target, namespace, resource_version=listing.resource_version)
        async for change in changes:
            seen.append(change.type)

    following = asyncio.create_task(follow())
    await asyncio.sleep(0)
    await engine.delete(DEFINITION.target, "", definition["metadata"]["name"])
    try:
        await asyncio.wait_for(following, PATIENCE_SECONDS)
    except StatusError as error:
        assert error.code in (404, 410)  # noqa: PT017 - how it ends is the server's affair; that it ends is ours
    assert "DELETED" in seen
