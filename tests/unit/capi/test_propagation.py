from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.server import ApiServer, ServerSettings
from remuda.capi import propagation
from remuda.capi.propagation import Keys, Ownership
from remuda.kube.client import Client, Target
from remuda.runtime.draft import Draft

Json = dict[str, Any]
THINGS = Target("v1", "configmaps")


def keys(labels: str = "", annotations: str = "") -> Keys:
    return Keys(frozenset(labels), frozenset(annotations))


def draft(labels: Json | None = None, annotations: Json | None = None) -> Draft:
    metadata: Json = {"name": "a", "namespace": "ns", "resourceVersion": "7", "uid": "u"}
    metadata |= {} if labels is None else {"labels": labels}
    metadata |= {} if annotations is None else {"annotations": annotations}
    return Draft(THINGS, msgspec.json.encode({"metadata": metadata}))


class TestHandDown:
    def test_hand_down_sets_given_labels_and_keeps_others(self) -> None:
        changed = draft({"theirs": "1"})
        propagation.propagate(changed, {"ours": "2"}, {"note": "3"}, Keys())
        assert changed.metadata["labels"] == {"theirs": "1", "ours": "2"}
        assert changed.metadata["annotations"] == {"note": "3"}

    def test_hand_down_removes_stale_keys(self) -> None:
        changed = draft({"a": "1", "b": "2"}, {"c": "3"})
        propagation.propagate(changed, {}, {}, keys("a", "c"))
        assert changed.patches() == ({"metadata": {"labels": {"a": None}, "annotations": {"c": None}}}, {})

    @pytest.mark.parametrize("labels", [None, {}, {"a": "1"}])
    def test_hand_down_without_changes_makes_no_patch(self, labels: Json | None) -> None:
        changed = draft(labels)
        propagation.propagate(changed, labels or {}, {}, Keys())
        assert changed.patches() == ({}, {})

    @given(
        present=st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12")),
        given=st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12")),
        stale=st.sets(st.sampled_from("abcd")),
    )
    def test_propagation_removes_stale_labels_and_sets_template_labels(
        self, present: Json, given: Json, stale: set[str]
    ) -> None:
        changed = draft(present)
        propagation.propagate(changed, given, {}, Keys(frozenset(stale)))
        assert changed.metadata["labels"] == {k: v for k, v in present.items() if k not in stale} | given


class TestOwned:
    def entry(self, manager: str, fields: Json, **others: str) -> Json:
        return {"manager": manager, "fieldsType": "FieldsV1", "fieldsV1": fields, **others}

    def of(self, *entries: Json) -> bytes:
        return msgspec.json.encode({"metadata": {"managedFields": entries}})

    def test_owned_returns_keys_of_field_manager(self) -> None:
        mine = {"f:metadata": {"f:labels": {".": {}, "f:a": {}, "f:x/y": {}}, "f:annotations": {"f:b": {}}}}
        value = self.of(self.entry("us", mine), self.entry("them", {"f:metadata": {"f:labels": {"f:c": {}}}}))
        assert propagation.owned(value, ("us",)) == Keys(frozenset({"a", "x/y"}), frozenset({"b"}))

    def test_owned_combines_several_field_managers(self) -> None:
        entries = [self.entry(name, {"f:metadata": {"f:labels": {f"f:{name}": {}}}}) for name in "ab"]
        assert propagation.owned(self.of(*entries), "ab") == keys("ab")

    def test_owned_ignores_status_subresource(self) -> None:
        value = self.of(self.entry("us", {"f:metadata": {"f:labels": {"f:a": {}}}}, subresource="status"))
        assert propagation.owned(value, ("us",)) == Keys()

    @pytest.mark.parametrize(
        "value", [b'{"metadata":{}}', b'{"metadata":{"managedFields":[{"fieldsV1":{"f:data":{}}}]}}']
    )
    def test_owned_without_metadata_fields_is_empty(self, value: bytes) -> None:
        assert propagation.owned(value, ("us", "")) == Keys()


class CountingClient:
    """Counts what is read from the server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.reads = 0

    async def get(self, *place: Any) -> bytes:
        self.reads += 1
        return await self.client.get(*place)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    server = await ApiServer.start(ServerSettings(data_dir=tmp_path, port=0))
    yield server.client()
    await server.stop()


async def make(client: Client, labels: Json, manager: str = "us") -> Draft:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": labels}}
    return Draft(THINGS, await client.create(THINGS, "default", obj, field_manager=manager))


class TestStale:
    async def test_stale_sends_no_request_without_leftover_keys(self, client: Client) -> None:
        counting = CountingClient(client)
        ownership = Ownership(counting)  # type: ignore[arg-type]
        made = await make(client, {"a": "1", "kept": "1"})
        assert await ownership.stale(made, {"a": "2"}, {}, ("us",), keep={"kept"}) == Keys()
        assert counting.reads == 0

    async def test_stale_returns_own_keys_and_reads_foreign_keys_once(self, client: Client) -> None:
        counting = CountingClient(client)
        ownership = Ownership(counting)  # type: ignore[arg-type]
        await make(client, {"ours": "1"})
        patch = {"metadata": {"labels": {"theirs": "1"}}}
        both = Draft(THINGS, await client.patch(THINGS, "default", "a", patch, field_manager="them"))
        assert await ownership.stale(both, {}, {}, ("us",)) == Keys(frozenset({"ours"}))
        propagation.propagate(both, {}, {}, Keys(frozenset({"ours"})))
        rest = Draft(THINGS, await propagation.send(client, both, "us"))
        assert rest.metadata["labels"] == {"theirs": "1"}
        assert await ownership.stale(rest, {}, {}, ("us",)) == Keys()
        assert counting.reads == 1

    async def test_overwritten_foreign_label_becomes_own(self, client: Client) -> None:
        made = await make(client, {"a": "theirs"}, "them")
        propagation.propagate(made, {"a": "ours"}, {}, Keys())
        changed = Draft(THINGS, await propagation.send(client, made, "us"))
        assert await Ownership(client).stale(changed, {}, {}, ("us",)) == Keys(frozenset({"a"}))

    async def test_cached_foreign_label_becomes_own_once_handed_down(self, client: Client) -> None:
        ownership = Ownership(client)
        made = await make(client, {"a": "theirs"}, "them")
        assert await ownership.stale(made, {}, {}, ("us",)) == Keys()
        assert await ownership.stale(made, {"a": "ours"}, {}, ("us",)) == Keys()
        propagation.propagate(made, {"a": "ours"}, {}, Keys())
        changed = Draft(THINGS, await propagation.send(client, made, "us"))
        assert await ownership.stale(changed, {}, {}, ("us",)) == Keys(frozenset({"a"}))

    async def test_outdated_draft_is_rejected_with_conflict(self, client: Client) -> None:
        made = await make(client, {"a": "1"})
        await client.patch(THINGS, "default", "a", {"metadata": {"labels": {"b": "1"}}})
        propagation.propagate(made, {"c": "1"}, {}, Keys())
        with pytest.raises(Exception, match="modified"):
            await propagation.send(client, made, "us")
