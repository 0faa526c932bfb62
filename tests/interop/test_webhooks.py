"""Our admission functions as webhooks of the real kube-apiserver, which calls them, trusts them and obeys them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from remuda.kube import kubeconfig
from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from remuda.kube.objects import Key, Kind, Object
from remuda.runtime.caches import Caches
from remuda.runtime.webhooks import Location, lookup_in
from remuda.runtime.webhooks.certificates import SECRET
from remuda.runtime.webhooks.configuration import MUTATING, VALIDATING
from remuda.runtime.webhooks.service import WebhookService
from tests.lab import Upstream
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port
from tests.suites.client import CONFIGMAPS, NAMESPACES, config, define_horses, loads, refusal
from tests.suites.horses import horse, horse_webhook

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUP = f"h{secrets.token_hex(3)}.example"
KEY = Key("default", f"webhooks-{secrets.token_hex(3)}")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps", Object)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def client(upstream: Upstream) -> AsyncIterator[Client]:
    made = HttpClient(kubeconfig.load(upstream.kubeconfig, environ={}))
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def horses(client: Client) -> AsyncIterator[Target]:
    """A kind under our webhooks, which are in force."""
    target = await define_horses(client, GROUP)
    caches = Caches(client)
    caches.of(CONFIG_MAP)
    await caches.start()
    service, other = replica(client, caches), replica(client, caches)
    await service.start("127.0.0.1", free_port_of(service))
    await other.start("127.0.0.1", free_port_of(other))  # a second replica: the last to register is called
    await eventually(lambda: defaulted(client, target))
    yield target
    for kind in (MUTATING, VALIDATING):
        await client.delete(kind, "", GROUP)
    await service.stop()
    await other.stop()
    await caches.close()


def replica(client: Client, caches: Caches) -> WebhookService:
    location = Location(url=f"https://127.0.0.1:{free_port()}")
    return WebhookService(client, [horse_webhook(GROUP)], lookup_in(caches), location=location, secret=KEY, name=GROUP)


def free_port_of(service: WebhookService) -> int:
    return int(service.location.url.rpartition(":")[2])


async def eventually(what: Callable[[], Awaitable[bool]]) -> None:
    """The API server learns of a new configuration by a watch of its own."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not await what():
            await asyncio.sleep(0.05)


async def accepted(attempt: Awaitable[object]) -> bool:
    try:
        await attempt
    except StatusError:
        return False
    return True


async def defaulted(client: Client, target: Target) -> bool:
    made = loads(await client.create(target, "default", horse(GROUP, "probe"), dry_run=True))
    return "legs" in made["spec"]


@pytest_asyncio.fixture(loop_scope="module")
async def space(client: Client, horses: Target) -> str:
    name = f"space-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, "", {"metadata": {"name": name}})
    return name


async def test_webhook_fills_in_defaults(client: Client, space: str, horses: Target) -> None:
    made = loads(await client.create(horses, space, horse(GROUP, "a")))
    assert made["spec"] == {"legs": 4}
    assert made["metadata"]["labels"] == {"a/horse": "a"}


async def test_webhook_rejects_invalid_field_by_name(client: Client, space: str, horses: Target) -> None:
    error = await refusal(client.create(horses, space, horse(GROUP, "a", legs=5)))
    assert (error.code, error.reason) == (422, "Invalid")
    (cause,) = error.details["causes"]
    assert (cause["field"], cause["reason"]) == ("spec.legs", "FieldValueInvalid")
    assert f'"validation.horse.{GROUP}" denied the request' in error.message
    assert "must be at most 4" in error.message


async def test_webhook_compares_old_and_new_object(client: Client, space: str, horses: Target) -> None:
    await client.create(horses, space, horse(GROUP, "a", legs=4))
    error = await refusal(client.patch(horses, space, "a", {"spec": {"legs": 3}}))
    assert "legs do not change" in error.message
    await client.patch(horses, space, "a", {"spec": {"replicas": 1}})
    await client.patch(horses, space, "a", {"status": {"any": "thing"}}, subresource="status")


async def test_webhook_denial_returns_403(client: Client, space: str, horses: Target) -> None:
    error = await refusal(client.create(horses, space, horse(GROUP, "pegasus")))
    assert (error.code, error.reason) == (403, "Forbidden")


async def test_webhook_validates_deletion(client: Client, space: str, horses: Target) -> None:
    kept = horse(GROUP, "a")
    kept["metadata"]["labels"] = {"keep": "yes"}
    await client.create(horses, space, kept)
    assert "it is kept" in (await refusal(client.delete(horses, space, "a"))).message
    await client.patch(horses, space, "a", {"metadata": {"labels": {"keep": None}}})
    await client.delete(horses, space, "a")


async def test_webhook_warnings_reach_client(upstream: Upstream, space: str, horses: Target) -> None:
    path = f"/apis/{GROUP}/v1/namespaces/{space}/horses"
    reply = await asyncio.to_thread(upstream.http, "POST", path, horse(GROUP, "a", legs=3))
    assert reply.code == 201
    assert reply.headers["Warning"] == '299 - "three legs are odd"'


async def test_webhook_looks_up_other_objects(client: Client, space: str, horses: Target) -> None:
    await client.create(CONFIGMAPS, space, config("here"))
    here, gone = horse(GROUP, "a", stable="here"), horse(GROUP, "a", stable="gone")
    await eventually(lambda: accepted(client.create(horses, space, here, dry_run=True)))  # once our cache has it
    assert "there is no such stable" in (await refusal(client.create(horses, space, gone))).message


async def test_renewed_webhook_ca_is_trusted(client: Client, space: str, horses: Target) -> None:
    caches = Caches(client)
    service = replica(client, caches)
    await client.delete(SECRET.target, *KEY)
    await service.start("127.0.0.1", free_port_of(service))
    try:
        await client.delete(SECRET.target, *KEY)
        await service.renew()
        stored = SECRET.decode(await client.get(SECRET.target, *KEY))
        assert stored.data["ca.crt"].count(b"BEGIN") == 1

        # Until the server has seen the new caBundle, it trusts nobody and stores nothing.
        await eventually(lambda: accepted(client.create(horses, space, horse(GROUP, "a"))))
        assert loads(await client.get(horses, space, "a"))["spec"] == {"legs": 4}
    finally:
        await service.stop()


async def test_unreachable_webhook_blocks_writes(client: Client, horses: Target) -> None:
    """The replica of the test before was the last to register, and has ended."""
    error = await refusal(client.create(horses, "default", horse(GROUP, "b")))
    assert error.code == 500
    assert "failed calling webhook" in error.message
    assert (await refusal(client.get(horses, "default", "b"))).code == 404
