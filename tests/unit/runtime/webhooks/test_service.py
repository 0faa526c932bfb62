"""Webhooks on the wire, called as an API server calls them: by the configuration, trusting only its caBundle."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from remuda.kube import clock
from remuda.kube.client import Client
from remuda.kube.objects import Key
from remuda.runtime.webhooks import Location
from remuda.runtime.webhooks.certificates import SECRET, SERVING_DAYS
from remuda.runtime.webhooks.configuration import MUTATING, VALIDATING
from remuda.runtime.webhooks.service import WebhookService
from tests.lab.ports import free_port
from tests.suites.client import loads, refusal
from tests.suites.horses import horse, horse_webhook
from tests.unit.runtime.things import until

from .test_review import GROUP, nothing, review

KEY = Key("default", "remuda-webhooks")


def service_on(client: Client, port: int) -> WebhookService:
    location = Location(url=f"https://127.0.0.1:{port}")
    return WebhookService(client, [horse_webhook(GROUP)], nothing, location=location, secret=KEY)


@pytest.fixture
async def service(client: Client) -> AsyncIterator[WebhookService]:
    port = free_port()
    running = service_on(client, port)
    await running.start("127.0.0.1", port)
    assert running.port == port
    yield running
    await running.stop()


async def call(client: Client, target: Any, body: bytes) -> tuple[int, bytes]:
    (entry,) = loads(await client.get(target, "", "remuda"))["webhooks"]
    config = entry["clientConfig"]
    trusting = ssl.create_default_context(cadata=base64.b64decode(config["caBundle"]).decode())
    async with aiohttp.ClientSession() as session, session.post(config["url"], data=body, ssl=trusting) as answer:
        return answer.status, await answer.read()


async def test_webhook_service_answers_mutating_and_validating_calls(client: Client, service: WebhookService) -> None:
    code, body = await call(client, MUTATING, review("CREATE", horse(GROUP, "a")))
    assert (code, msgspec.json.decode(body)["response"]["patchType"]) == (200, "JSONPatch")
    code, body = await call(client, VALIDATING, review("CREATE", horse(GROUP, "a", legs=7)))
    assert (code, msgspec.json.decode(body)["response"]["allowed"]) == (200, False)


async def test_malformed_webhook_request_returns_400(client: Client, service: WebhookService) -> None:
    code, body = await call(client, MUTATING, b"rubbish")
    assert code == 400
    assert body.startswith(b"not an AdmissionReview")


async def test_failing_webhook_function_returns_500_without_details(client: Client) -> None:
    def fail(_: object) -> Any:
        raise RuntimeError("a bug")

    port = free_port()
    webhook = msgspec.structs.replace(horse_webhook(GROUP), function=fail)
    location = Location(url=f"https://127.0.0.1:{port}")
    broken = WebhookService(client, [webhook], nothing, location=location, secret=KEY)
    await broken.start("127.0.0.1", port)
    code, body = await call(client, VALIDATING, review("CREATE", horse(GROUP, "a")))
    await broken.stop()
    assert (code, b"a bug" in body) == (500, False)


async def test_second_replica_serves_with_the_same_certificate(client: Client, service: WebhookService) -> None:
    before = await client.get(SECRET.target, *KEY)
    port = free_port()
    second = service_on(client, port)
    await second.start("127.0.0.1", port)
    try:
        assert await client.get(SECRET.target, *KEY) == before
        assert (await call(client, MUTATING, review("CREATE", horse(GROUP, "a"))))[0] == 200
    finally:
        await second.stop()


async def test_deleted_certificate_secret_is_recreated_and_served(client: Client, service: WebhookService) -> None:
    await client.delete(SECRET.target, *KEY)
    await service.renew()
    assert (await call(client, MUTATING, review("CREATE", horse(GROUP, "a"))))[0] == 200


async def test_serving_certificate_is_renewed_automatically(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes by a third of a year between two looks at the clock; the wait itself is none."""
    monkeypatch.setattr("remuda.runtime.webhooks.service._LONGEST_SLEEP_SECONDS", 0.01)
    port = free_port()
    service = service_on(client, port)
    await service.start("127.0.0.1", port)
    first = SECRET.decode(await client.get(SECRET.target, *KEY))
    seen: list[Any] = []
    renew = service.renew

    async def noting() -> Any:
        seen.append(await renew())
        return seen[-1]

    monkeypatch.setattr(service, "renew", noting)
    started = clock.time()
    clock.use(lambda: started + SERVING_DAYS * 0.7 * 86400)
    try:
        await until(lambda: seen)
        stored = SECRET.decode(await client.get(SECRET.target, *KEY))
        assert stored.data["tls.crt"] == seen[0].certificate_pem != first.data["tls.crt"]
        assert stored.data["ca.crt"] == first.data["ca.crt"]
    finally:
        clock.use(None)
        await service.stop()


async def test_port_in_use_leaves_no_webhook_registered(client: Client, service: WebhookService) -> None:
    location = Location(url=f"https://127.0.0.1:{service.port}")
    other = WebhookService(client, [horse_webhook(GROUP)], nothing, location=location, secret=KEY, name="other")
    with pytest.raises(OSError):
        await other.start("127.0.0.1", service.port)
    for target in (MUTATING, VALIDATING):
        assert (await refusal(client.get(target, "", "other"))).code == 404
