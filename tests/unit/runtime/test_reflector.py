"""Reflectors on the engine, with connections that are cut, histories that are lost and servers that are not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from remuda.apiserver.server import ApiServer
from remuda.kube.client import Client, Target
from remuda.kube.errors import StatusError, gone
from remuda.kube.objects import Kind, Object
from remuda.runtime.caches import Caches
from remuda.runtime.informer import Informer
from remuda.runtime.outcome import Retryable
from remuda.runtime.writing import WritingClient
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
        self.things.listen(self._told)

    def _told(self, before: ConfigMap | None, after: ConfigMap | None, initial: bool) -> None:
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


async def test_it_lists_and_then_follows(client: Client, watched: Watched) -> None:
    await create(client, "a")
    await until(lambda: watched.names() == ["a"])
    await client.delete(CONFIG_MAP.target, OURS, "a")
    await until(lambda: watched.names() == [])
    assert watched.heard[-2:] == ["+a", "-a"]
    assert (watched.flaky.lists, watched.flaky.watches) == (1, 1)


async def test_a_watch_that_ends_is_taken_up_where_it_stopped(client: Client, watched: Watched) -> None:
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


async def test_lost_history_is_replaced_by_a_list_at_once_and_deletions_are_worked_out(
    client: Client, watched: Watched
) -> None:
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


async def test_a_connection_that_breaks_is_reported_until_it_works_again(client: Client, watched: Watched) -> None:
    await until(lambda: watched.flaky.watches == 1)
    watched.flaky.cut(ConnectionResetError("reset by peer"))
    await until(lambda: watched.caches.errors)
    assert "reset by peer" in str(watched.caches.errors[CONFIG_MAP.target])
    await create(client, "a")
    await until(lambda: watched.names() == ["a"])
    assert watched.caches.errors == {}
    assert watched.flaky.lists == 1


@virtually
async def test_a_server_that_is_away_is_asked_ever_more_seldom(server: ApiServer) -> None:
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
async def test_a_watch_that_ends_as_soon_as_it_begins_is_not_asked_for_in_a_tight_loop(server: ApiServer) -> None:
    flaky = Flaky(server.client())
    watching = Watched(flaky)
    await watching.caches.start()

    def end_watches() -> None:
        flaky.cut()
        asyncio.get_running_loop().call_later(0.01, end_watches)

    end_watches()
    await asyncio.sleep(60)
    assert 5 <= flaky.watches <= 20
    assert "as soon as it began" in str(watching.caches.errors[CONFIG_MAP.target])
    await watching.caches.close()


@virtually
async def test_watches_that_are_refused_wait_longer_each_time_although_lists_work(server: ApiServer) -> None:
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


async def test_a_kind_known_only_now_is_filled_when_it_is_asked_for(client: Client) -> None:
    caches = Caches(client)
    await caches.start()
    await create(client, "a")
    found, again = await asyncio.gather(caches.ensure(CONFIG_MAP.target), caches.ensure(CONFIG_MAP.target))
    assert found is again is caches.known(CONFIG_MAP.target)
    assert found.get(OURS, "a") is not None
    await caches.close()


async def test_a_kind_that_does_not_exist_is_said_to_at_once_and_noticed_when_it_appears(client: Client) -> None:
    caches = Caches(client)
    await caches.start()
    for _ in range(2):
        with pytest.raises(Retryable, match=r"widgets of example\.com/v1 cannot be listed: .*could not find"):
            await caches.ensure(WIDGETS)
    await client.create(DEFINITIONS, "", WIDGET_DEFINITION)
    await until(lambda: caches.known(WIDGETS).synced.is_set())  # type: ignore[union-attr]
    assert len(await caches.ensure(WIDGETS)) == 0
    assert caches.errors == {}
    await caches.close()


@virtually
async def test_a_first_list_that_takes_too_long_keeps_nobody_waiting(server: ApiServer) -> None:
    class Silent(Flaky):
        async def list(self, *args, **options):  # type: ignore[no-untyped-def]
            await asyncio.Event().wait()

    caches = Caches(Silent(server.client()))  # type: ignore[arg-type]
    await caches.start()
    with pytest.raises(Retryable, match="could not be listed in time"):
        await caches.ensure(CONFIG_MAP.target)
    assert asyncio.get_running_loop().time() < 20
    await caches.close()


class Numbered(Object):
    data: Mapping[str, int] = {}


async def test_an_object_that_cannot_be_read_is_reported_and_the_cache_is_filled(client: Client) -> None:
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


async def test_parts_of_one_resource_are_held_apart_and_see_only_their_own(client: Client) -> None:
    caches = Caches(client)
    red = caches.of(CONFIG_MAP, label_selector="colour=red")
    blue = caches.of(CONFIG_MAP, label_selector="colour=blue")
    assert caches.of(CONFIG_MAP, label_selector="colour=red") is red
    assert caches.of(CONFIG_MAP) is red
    await caches.start()
    writing = WritingClient(client, caches, lambda *_: None)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"colour": "blue"}}}
    await writing.create(CONFIG_MAP.target, OURS, body)
    assert (red.get(OURS, "a"), blue.get(OURS, "a") is not None) == (None, True)
    await writing.delete(CONFIG_MAP.target, OURS, "a")
    assert blue.get(OURS, "a") is None
    await caches.close()
