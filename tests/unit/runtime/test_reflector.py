"""Reflectors on the engine, with connections that are cut, histories that are lost and servers that are not there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

import pytest

from remuda.apiserver.server import ApiServer
from remuda.kube.client import Change, Client, Target
from remuda.kube.errors import StatusError, UnreadableWatch, gone
from remuda.kube.objects import Kind, Object
from remuda.runtime.caches import Caches
from remuda.runtime.caching_client import CachingClient
from remuda.runtime.informer import Informer
from remuda.runtime.outcome import Retryable
from tests.unit.runtime.things import CONFIG_MAP, ConfigMap, Flaky, create, until, virtually

OURS = "default"
WIDGETS = Target("example.com/v1", "widgets")
DEFINITIONS = Target("apiextensions.k8s.io/v1", "customresourcedefinitions")
WIDGET_DEFINITION = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Widget", "plural": "widgets"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


class Watched:
    def __init__(self, flaky: Flaky) -> None:
        self.flaky = flaky
        self.caches = Caches(flaky)  # type: ignore[arg-type]
        self.things: Informer[ConfigMap] = self.caches.of(CONFIG_MAP, namespace=OURS)
        self.heard: list[str] = []
        self.things.listen(self._record_change)

    def _record_change(self, before: ConfigMap | None, after: ConfigMap | None, initial: bool) -> None:
        kept = after or before
        assert kept is not None
        self.heard.append(f"{'-' if after is None else '~' if before else '+'}{kept.metadata.name}")

    def names(self) -> list[str]:
        return [thing.metadata.name for thing in self.things.all() if thing.metadata.name != "kube-root-ca.crt"]


@pytest.fixture
async def watched(client: Client) -> AsyncIterator[Watched]:
    watching = Watched(Flaky(client))
    await watching.caches.start()
    yield watching
    await watching.caches.close()


async def test_reflector_lists_once_and_then_watches(client: Client, watched: Watched) -> None:
    await create(client, "a")
    await until(lambda: watched.names() == ["a"])
    await client.delete(CONFIG_MAP.target, OURS, "a")
    await until(lambda: watched.names() == [])
    assert watched.heard[-2:] == ["+a", "-a"]
    assert (watched.flaky.lists, watched.flaky.watches) == (1, 1)


async def test_ended_watch_is_resumed_without_missing_events(client: Client, watched: Watched) -> None:
    await create(client, "a")
    await until(lambda: watched.names() == ["a"])
    watched.flaky.cut()
    await client.delete(CONFIG_MAP.target, OURS, "a")
    await create(client, "a")
    await create(client, "b")
    await until(lambda: watched.names() == ["a", "b"])
    assert watched.heard[-4:] == ["+a", "-a", "+a", "+b"], "nothing in between is missed"
    assert watched.flaky.lists == 1
    assert watched.caches.errors == {}


async def test_expired_watch_is_relisted_and_deletions_are_detected(client: Client, watched: Watched) -> None:
    await create(client, "a")
    await create(client, "b")
    await until(lambda: watched.names() == ["a", "b"])
    watched.flaky.cut(gone("too old resource version"))
    await client.delete(CONFIG_MAP.target, OURS, "a")
    await create(client, "c")
    await until(lambda: watched.names() == ["b", "c"])
    assert watched.flaky.lists == 2
    assert watched.heard.count("-a") == 1
    assert watched.heard.count("+b") == 1, "what has not changed is not told again"


async def test_broken_connection_is_reported_until_restored(client: Client, watched: Watched) -> None:
    await until(lambda: watched.flaky.watches == 1)
    watched.flaky.cut(ConnectionResetError("reset by peer"))
    await until(lambda: watched.caches.errors)
    assert "reset by peer" in str(watched.caches.errors[CONFIG_MAP.target])
    await create(client, "a")
    await until(lambda: watched.names() == ["a"])
    assert watched.caches.errors == {}
    assert watched.flaky.lists == 1


@virtually
async def test_unreachable_server_is_polled_with_backoff(server: ApiServer) -> None:
    flaky = Flaky(server.client())
    watching = Watched(flaky)
    flaky.failing = [OSError("no route to host")] * 1000
    starting = asyncio.ensure_future(watching.caches.start())
    await asyncio.sleep(120)
    assert 12 <= flaky.lists <= 25, "0.2 s at first, 10 s at most"
    assert not starting.done()
    flaky.failing = []
    await starting
    assert watching.caches.errors == {}
    await watching.caches.close()


@virtually
async def test_immediately_ending_watch_is_retried_with_backoff(server: ApiServer) -> None:
    flaky = Flaky(server.client())
    watching = Watched(flaky)
    await watching.caches.start()

    def end_watches() -> None:
        flaky.cut()
        asyncio.get_running_loop().call_later(0.01, end_watches)

    end_watches()
    await asyncio.sleep(60)
    assert 5 <= flaky.watches <= 20
    assert "ended immediately" in str(watching.caches.errors[CONFIG_MAP.target])
    await watching.caches.close()


@virtually
async def test_forbidden_watch_is_retried_with_backoff_although_lists_succeed(server: ApiServer) -> None:
    class Forbidding(Flaky):
        async def watch(self, *args, **options):  # type: ignore[no-untyped-def]
            self.watches += 1
            raise StatusError(403, "Forbidden", "may not watch")
            yield

    flaky = Forbidding(server.client())
    watching = Watched(flaky)
    await watching.caches.start()
    await asyncio.sleep(60)
    assert 5 <= flaky.watches <= 20
    await watching.caches.close()


class Garbled(Flaky):
    """Its watches bring what cannot be read, as long as `garbled` lasts."""

    garbled = True

    async def watch(self, *args, **options):  # type: ignore[no-untyped-def]
        if self.garbled:
            self.watches += 1
            raise UnreadableWatch("JSON is malformed")
        async for change in super().watch(*args, **options):
            yield change


@virtually
async def test_unreadable_watch_falls_back_to_lists_until_readable(
    server: ApiServer,
) -> None:
    warnings: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: warnings.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("remuda.runtime.reflector").addHandler(handler)
    client, flaky = server.client(), Garbled(server.client())
    watching = Watched(flaky)
    await watching.caches.start()
    await create(client, "a")
    await asyncio.sleep(60)
    assert watching.names() == ["a"], "lists bring what the watch does not"
    assert 6 <= flaky.lists <= 20
    assert flaky.lists - flaky.watches in (0, 1), "a list after each watch that cannot be read"
    assert "cannot be read: JSON is malformed" in watching.caches.unreadable[CONFIG_MAP.target]
    assert "cannot be read" in str(watching.caches.errors[CONFIG_MAP.target])
    (warning,) = warnings
    assert warning == "cannot watch v1 configmaps: the server's watch cannot be read: JSON is malformed"
    logging.getLogger("remuda.runtime.reflector").removeHandler(handler)
    flaky.garbled = False
    await asyncio.sleep(15)
    await create(client, "b")
    await asyncio.sleep(1)
    assert watching.names() == ["a", "b"]
    assert (watching.caches.unreadable, watching.caches.errors) == ({}, {})
    await watching.caches.close()


@virtually
async def test_partly_unreadable_watch_is_relisted_with_backoff(server: ApiServer) -> None:
    class Half(Flaky):
        async def watch(self, *args, **options):  # type: ignore[no-untyped-def]
            self.watches += 1
            yield Change("BOOKMARK", b'{"metadata":{"resourceVersion":"1"}}')
            raise UnreadableWatch("JSON is malformed")

    flaky = Half(server.client())
    watching = Watched(flaky)
    await watching.caches.start()
    await asyncio.sleep(60)
    assert 6 <= flaky.lists <= 20
    await watching.caches.close()


@virtually
async def test_event_without_object_makes_watch_unreadable(server: ApiServer) -> None:
    class Odd(Flaky):
        value = b""

        async def watch(self, *args, **options):  # type: ignore[no-untyped-def]
            self.watches += 1
            yield Change("MODIFIED", self.value)

    for value in (b"{}", b"[]", b'{"metadata":{"resourceVersion":"new"}}', b'{"metadata":{"name":1}}'):
        flaky = Odd(server.client())
        flaky.value = value
        watching = Watched(flaky)
        await watching.caches.start()
        await asyncio.sleep(5)
        assert "an event has no valid object" in watching.caches.unreadable[CONFIG_MAP.target]
        assert flaky.lists > 1
        await watching.caches.close()


async def test_ensure_fills_cache_of_undeclared_kind(client: Client) -> None:
    caches = Caches(client)
    await caches.start()
    await create(client, "a")
    found, again = await asyncio.gather(caches.ensure(CONFIG_MAP.target), caches.ensure(CONFIG_MAP.target))
    assert found is again is caches.known(CONFIG_MAP.target)
    assert found.get(OURS, "a") is not None
    await caches.close()


async def test_ensure_of_missing_kind_raises_and_recovers_when_kind_appears(client: Client) -> None:
    caches = Caches(client)
    await caches.start()
    for _ in range(2):
        with pytest.raises(Retryable, match=r"cannot list widgets of example\.com/v1: .*could not find"):
            await caches.ensure(WIDGETS)
    await client.create(DEFINITIONS, "", WIDGET_DEFINITION)
    await until(lambda: caches.known(WIDGETS).synced.is_set())  # type: ignore[union-attr]
    assert len(await caches.ensure(WIDGETS)) == 0
    assert caches.errors == {}
    await caches.close()


@virtually
async def test_ensure_times_out_on_slow_first_list(server: ApiServer) -> None:
    class Silent(Flaky):
        async def list(self, *args, **options):  # type: ignore[no-untyped-def]
            await asyncio.Event().wait()

    caches = Caches(Silent(server.client()))  # type: ignore[arg-type]
    await caches.start()
    with pytest.raises(Retryable, match="timed out"):
        await caches.ensure(CONFIG_MAP.target)
    assert asyncio.get_running_loop().time() < 20
    await caches.close()


class Numbered(Object):
    data: Mapping[str, int] = {}


async def test_undecodable_object_is_reported_and_cache_is_synced(client: Client) -> None:
    await create(client, "bad", {"number": "seven"})
    await create(client, "good")
    caches = Caches(client)
    numbered = caches.of(Kind("v1", "ConfigMap", "configmaps", Numbered), namespace=OURS)
    assert list(caches.missing.values()) == ["not listed yet"]
    await caches.start()
    assert caches.missing == {}
    assert numbered.get(OURS, "good") is not None
    assert numbered.get(OURS, "bad") is None
    assert "Expected `int`, got `str`" in str(caches.errors[CONFIG_MAP.target])
    await client.delete(CONFIG_MAP.target, OURS, "bad")
    await until(lambda: caches.errors == {} or "Expected" not in str(caches.errors))
    await caches.close()


async def test_caches_with_different_selectors_are_separate(client: Client) -> None:
    caches = Caches(client)
    red = caches.of(CONFIG_MAP, label_selector="colour=red")
    blue = caches.of(CONFIG_MAP, label_selector="colour=blue")
    assert caches.of(CONFIG_MAP, label_selector="colour=red") is red
    await caches.start()
    writing = CachingClient(client, caches, lambda *_: None)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"colour": "blue"}}}
    await writing.create(CONFIG_MAP.target, OURS, body)
    assert (red.get(OURS, "a"), blue.get(OURS, "a") is not None) == (None, True)
    await writing.delete(CONFIG_MAP.target, OURS, "a")
    assert blue.get(OURS, "a") is None
    await caches.close()


async def test_cache_without_selector_is_rejected_when_only_filtered_caches_exist(client: Client) -> None:
    caches = Caches(client)
    caches.of(CONFIG_MAP, label_selector="colour=red")
    for known in ("'colour=red'", "'colour=red', 'colour=blue'"):
        with pytest.raises(ValueError, match=f"configmaps are cached in parts: use .* selectors {known}$"):
            caches.of(CONFIG_MAP)
        with pytest.raises(ValueError, match="in parts"):
            caches.index(CONFIG_MAP, "by-name", lambda one: (one.metadata.name,))
        caches.of(CONFIG_MAP, label_selector="colour=blue")


async def test_unfiltered_cache_is_used_for_later_filtered_requests(client: Client) -> None:
    caches = Caches(client)
    red = caches.of(CONFIG_MAP, label_selector="colour=red")
    await caches.start()
    assert caches.known(CONFIG_MAP.target) is None
    await create(client, "plain")
    whole = await caches.ensure(CONFIG_MAP.target)
    assert whole is not red
    assert whole.get(OURS, "plain") is not None
    assert red.get(OURS, "plain") is None
    assert caches.of(CONFIG_MAP) is caches.known(CONFIG_MAP.target) is whole
    assert caches.of(CONFIG_MAP, label_selector="colour=blue") is whole
    await caches.close()
