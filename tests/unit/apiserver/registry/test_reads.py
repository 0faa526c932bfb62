from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.apiserver.client import LocalClient
from remuda.apiserver.registry import watch
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.registry.served import Served
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.kube.client import Change
from remuda.kube.errors import StatusError
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.apiserver.registry.conftest import JANE, NAMESPACE, NAMESPACES, WIDGET, WIDGETS, Everyone, loads, widget


async def names(client: LocalClient, namespace: str = "ns", **options: Any) -> list[str]:
    return [loads(item)["metadata"]["name"] for item in (await client.list(WIDGETS, namespace, **options)).items]


async def take(changes: AsyncIterator[Change], count: int) -> list[tuple[str, str]]:
    taken = []
    async with asyncio.timeout(LIMIT_SECONDS):
        async for change in changes:
            body = loads(change.value)
            taken.append((change.type, body["metadata"].get("name", "")))
            if len(taken) == count:
                break
    return taken


@pytest.fixture
async def client_with_widgets(client: LocalClient) -> LocalClient:
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "red"), ("d", "blue")):
        body = widget(name, colour=colour)
        body["metadata"]["labels"] = {"colour": colour}
        await client.create(WIDGETS, "ns", body)
    return client


class TestList:
    async def test_list_is_ordered_and_supports_selectors(self, client_with_widgets: LocalClient) -> None:
        assert await names(client_with_widgets) == ["a", "b", "c", "d"]
        assert await names(client_with_widgets, label_selector="colour=red") == ["a", "c"]
        assert await names(client_with_widgets, label_selector="colour notin (red)") == ["b", "d"]
        assert await names(client_with_widgets, field_selector="metadata.name=b") == ["b"]
        assert await names(client_with_widgets, field_selector="spec.colour!=red") == ["b", "d"]
        assert await names(client_with_widgets, namespace="") == ["a", "b", "c", "d"]
        assert await names(client_with_widgets, namespace="other") == []

    async def test_list_rejects_unsupported_field_selector(self, client_with_widgets: LocalClient) -> None:
        with pytest.raises(StatusError, match=r"field label not supported: spec\.size"):
            await names(client_with_widgets, field_selector="spec.size=1")

    async def test_list_pages_show_state_of_the_first_page(self, client_with_widgets: LocalClient) -> None:
        first = await client_with_widgets.list(WIDGETS, "ns", limit=2)
        await client_with_widgets.delete(WIDGETS, "ns", "c")
        await client_with_widgets.create(WIDGETS, "ns", widget("e"))
        rest = await client_with_widgets.list(WIDGETS, "ns", limit=2, continue_token=first.continue_token)
        assert [loads(i)["metadata"]["name"] for i in rest.items] == ["c", "d"]
        assert rest.resource_version == first.resource_version
        assert rest.continue_token == ""

    async def test_list_pages_honor_label_selector(self, client_with_widgets: LocalClient) -> None:
        first = await client_with_widgets.list(WIDGETS, "ns", limit=1, label_selector="colour=blue")
        rest = await client_with_widgets.list(
            WIDGETS, "ns", limit=1, label_selector="colour=blue", continue_token=first.continue_token
        )
        assert [loads(i)["metadata"]["name"] for i in (*first.items, *rest.items)] == ["b", "d"]

    async def test_list_rejects_malformed_continue_token(self, client_with_widgets: LocalClient) -> None:
        for token in ("nonsense", "e30", "!!!", "eyJydiI6LTF9", "é"):
            with pytest.raises(StatusError) as caught:
                await client_with_widgets.list(WIDGETS, "ns", continue_token=token)
            assert caught.value.code == 400

    async def test_list_at_future_revision_times_out(self, client_with_widgets: LocalClient) -> None:
        with pytest.raises(StatusError) as caught:
            await client_with_widgets.list(WIDGETS, "ns", resource_version="999999")
        assert (caught.value.code, caught.value.reason) == (504, "Timeout")

    async def test_list_at_exact_revision_shows_past_state(
        self, client_with_widgets: LocalClient, registry: Registry
    ) -> None:
        revision = str(registry.store.revision)
        await client_with_widgets.delete(WIDGETS, "ns", "a")
        page = await client_with_widgets.list(WIDGETS, "ns", resource_version=revision, limit=10)
        assert [loads(i)["metadata"]["name"] for i in page.items] == ["a", "b", "c", "d"]
        assert page.resource_version == revision


class TestWatch:
    async def test_watch_starts_with_existing_objects(self, client_with_widgets: LocalClient) -> None:
        changes = client_with_widgets.watch(WIDGETS, "ns")
        assert await take(changes, 4) == [("ADDED", n) for n in "abcd"]

    async def test_watch_follows_from_a_revision(self, client_with_widgets: LocalClient, registry: Registry) -> None:
        changes = client_with_widgets.watch(WIDGETS, "ns", resource_version=str(registry.store.revision))
        await client_with_widgets.patch(WIDGETS, "ns", "a", {"spec": {"size": 2}})
        await client_with_widgets.delete(WIDGETS, "ns", "b")
        await client_with_widgets.create(WIDGETS, "ns", widget("e"))
        assert await take(changes, 3) == [("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "e")]

    async def test_watch_marks_end_of_initial_events_with_bookmark(self, client_with_widgets: LocalClient) -> None:
        changes = client_with_widgets.watch(WIDGETS, "ns", send_initial_events=True)
        lines = [change async for change in _first(changes, 5)]
        assert [line.type for line in lines] == ["ADDED"] * 4 + ["BOOKMARK"]
        bookmark = loads(lines[-1].value)
        assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert bookmark["kind"] == "Widget"

    @pytest.mark.parametrize("selector", [{"label_selector": "colour=red"}, {"field_selector": "spec.colour=red"}])
    async def test_watch_reports_objects_entering_and_leaving_selector(
        self, client_with_widgets: LocalClient, registry: Registry, selector: dict[str, str]
    ) -> None:
        changes = client_with_widgets.watch(WIDGETS, "ns", resource_version=str(registry.store.revision), **selector)
        paint = lambda colour: {"metadata": {"labels": {"colour": colour}}, "spec": {"colour": colour}}  # noqa: E731
        await client_with_widgets.patch(WIDGETS, "ns", "b", paint("red"))
        await client_with_widgets.patch(WIDGETS, "ns", "b", {"spec": {"size": 9}})
        await client_with_widgets.patch(WIDGETS, "ns", "b", paint("green"))
        await client_with_widgets.patch(WIDGETS, "ns", "d", {"spec": {"size": 9}})
        await client_with_widgets.delete(WIDGETS, "ns", "a")
        assert await take(changes, 4) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b"), ("DELETED", "a")]

    async def test_watch_deleted_event_on_leaving_selector_shows_last_matching_state(
        self, client_with_widgets: LocalClient, registry: Registry
    ) -> None:
        revision = str(registry.store.revision)
        changes = client_with_widgets.watch(WIDGETS, "ns", resource_version=revision, label_selector="colour=red")
        await client_with_widgets.patch(WIDGETS, "ns", "a", {"metadata": {"labels": {"colour": "blue"}}})
        (left,) = [change async for change in _first(changes, 1)]
        body = loads(left.value)
        assert body["metadata"]["labels"] == {"colour": "red"}
        assert int(body["metadata"]["resourceVersion"]) == registry.store.revision

    async def test_idle_watch_receives_bookmarks(
        self, client_with_widgets: LocalClient, registry: Registry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watch, "BOOKMARK_SECONDS", 0.02)
        changes = client_with_widgets.watch(WIDGETS, "other", resource_version=str(registry.store.revision))
        await client_with_widgets.patch(WIDGETS, "ns", "a", {"spec": {"size": 2}})
        (bookmark,) = [change async for change in _first(changes, 1)]
        assert bookmark.type == "BOOKMARK"
        assert int(loads(bookmark.value)["metadata"]["resourceVersion"]) == registry.store.revision

    async def test_watch_from_compacted_revision_returns_410(self, tmp_path: Path) -> None:
        store = await SqliteStore.open(tmp_path / "small", history_events=4)
        client = LocalClient(Registry(store, Served([NAMESPACE, WIDGET]), Everyone()), JANE, field_manager="test")
        await client.create(NAMESPACES, "", {"metadata": {"name": "ns"}})
        first = await client.list(WIDGETS, "ns")
        for n in range(20):
            await client.create(WIDGETS, "ns", widget(f"w{n}"))
        with pytest.raises(StatusError) as caught:
            await _all(client.watch(WIDGETS, "ns", resource_version=first.resource_version))
        assert (caught.value.code, caught.value.reason) == (410, "Expired")
        await store.close()

    async def test_expired_continue_token_offers_inconsistent_continuation(self, tmp_path: Path) -> None:
        store = await SqliteStore.open(tmp_path / "small", history_events=4)
        client = LocalClient(Registry(store, Served([NAMESPACE, WIDGET]), Everyone()), JANE, field_manager="test")
        await client.create(NAMESPACES, "", {"metadata": {"name": "ns"}})
        for n in range(6):
            await client.create(WIDGETS, "ns", widget(f"w{n}"))
        first = await client.list(WIDGETS, "ns", limit=2)
        for n in range(10):
            await client.patch(WIDGETS, "ns", "w5", {"spec": {"size": n + 2}})
        with pytest.raises(StatusError) as caught:
            await client.list(WIDGETS, "ns", limit=2, continue_token=first.continue_token)
        assert (caught.value.code, caught.value.reason) == (410, "Expired")
        rest = await client.list(WIDGETS, "ns", continue_token=caught.value.metadata["continue"])
        assert [loads(i)["metadata"]["name"] for i in rest.items] == ["w2", "w3", "w4", "w5"]
        await store.close()

    async def test_watch_ends_when_the_store_closes(self, client_with_widgets: LocalClient, registry: Registry) -> None:
        changes = client_with_widgets.watch(WIDGETS, "ns", resource_version=str(registry.store.revision))
        waiting = asyncio.create_task(_all(changes))
        await asyncio.sleep(0.01)
        await registry.store.close()  # type: ignore[attr-defined]
        assert await asyncio.wait_for(waiting, LIMIT_SECONDS) == []


async def _first(changes: AsyncIterator[Change], count: int) -> AsyncIterator[Change]:
    async with asyncio.timeout(LIMIT_SECONDS):
        async for change in changes:
            yield change
            count -= 1
            if not count:
                return


async def _all(changes: AsyncIterator[Change]) -> list[Change]:
    return [change async for change in changes]


async def test_local_client_returns_objects_as_json_bytes(client: LocalClient) -> None:
    made = await client.create(WIDGETS, "ns", widget())
    assert isinstance(made, bytes)
    assert made.startswith(b'{"apiVersion":"test.io/v1","kind":"Widget","metadata":{')
    assert msgspec.json.decode(made)["metadata"]["name"] == "w"
