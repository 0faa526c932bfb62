"""What decoding found in order is not looked at again, unless something changed it on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.client import LocalClient
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.registry.served import Served
from remuda.apiserver.schema.walk import Structural
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.kube.admission import AdmissionResult, Review
from remuda.kube.errors import StatusError
from remuda.kube.schema import Schema
from tests.unit.apiserver.registry.conftest import (
    JANE,
    NAMESPACE,
    NAMESPACES,
    WIDGET,
    WIDGETS,
    Everyone,
    loads,
    widget,
)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    walk = Structural.is_fine

    def counted(self: Structural, obj: Any) -> bool:
        seen.append(obj)
        return walk(self, obj)

    monkeypatch.setattr(Structural, "is_fine", counted)
    return seen


@pytest.fixture
async def strict_client(tmp_path: Path) -> AsyncIterator[LocalClient]:
    """Of widgets that are nothing without their status."""
    schema = Schema(type="object", properties=WIDGET.schema.properties, required=("status",))
    store = await SqliteStore.open(tmp_path / "strict")
    served = Served([NAMESPACE, replace(WIDGET, schema=schema)])
    client = LocalClient(Registry(store, served, Everyone()), JANE, field_manager="test")
    await client.create(NAMESPACES, "", {"metadata": {"name": "ns"}})
    yield client
    await store.close()


async def test_valid_write_is_validated_once(client: LocalClient, walks: list[Any]) -> None:
    await client.create(WIDGETS, "ns", widget())
    await client.patch(WIDGETS, "ns", "w", {"spec": {"size": 2}})
    await client.patch(WIDGETS, "ns", "w", {"status": {"phase": "Done"}}, subresource="status")
    assert len(walks) == 3


async def test_create_without_required_status_is_rejected(strict_client: LocalClient) -> None:
    with pytest.raises(StatusError) as caught:
        await strict_client.create(WIDGETS, "ns", {**widget(), "status": {"phase": "Done"}})
    assert caught.value.code == 422
    assert caught.value.message == 'Widget.test.io "w" is invalid: status: Required value'


@pytest.mark.parametrize("patch", [{"spec": {"size": -1}}, {"spec": {"size": "big"}}])
async def test_object_changed_by_admission_is_validated_again(
    client: LocalClient, registry: Registry, patch: dict[str, Any]
) -> None:
    await client.create(WIDGETS, "ns", widget("before"))

    def spoil(review: Review) -> AdmissionResult:
        return AdmissionResult(patch=patch)

    registry.admission.register("test.io", "widgets", spoil)
    for write in (
        client.create(WIDGETS, "ns", widget()),
        client.patch(WIDGETS, "ns", "before", {"spec": {"colour": "red"}}),
    ):
        with pytest.raises(StatusError) as caught:
            await write
        assert caught.value.code == 422
        assert "spec.size: Invalid value" in caught.value.message


async def test_status_update_keeps_stored_spec(client: LocalClient, walks: list[Any]) -> None:
    made = loads(await client.create(WIDGETS, "ns", widget(size=3)))
    walks.clear()
    body = {**made, "spec": {"size": 7}, "status": {"phase": "Done"}}
    shown = loads(await client.update(WIDGETS, "ns", "w", body, subresource="status"))
    assert (shown["spec"], shown["status"]) == ({"size": 3}, {"phase": "Done"})
    assert len(walks) == 2
