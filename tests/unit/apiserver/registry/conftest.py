"""A registry on a real store, with one namespaced kind (widgets), one cluster-scoped kind and namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.apiserver.auth.user import Attributes, Decision, User
from remuda.apiserver.client import LocalClient
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.registry.served import Served
from remuda.apiserver.resource import Resource, ScalePaths
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.kube.client import Target
from remuda.kube.schema import OBJECT_META, Schema

WIDGETS = Target("test.io/v1", "widgets")
NAMESPACES = Target("v1", "namespaces")
JANE = User("jane", groups=("system:authenticated",))

_STRING = Schema(type="string")
_INT = Schema(type="integer")


def _kind(properties: dict[str, Schema]) -> Schema:
    return Schema(
        type="object",
        properties={"apiVersion": _STRING, "kind": _STRING, "metadata": OBJECT_META, **properties},
    )


WIDGET = Resource(
    group="test.io",
    version="v1",
    kind="Widget",
    plural="widgets",
    list_kind="WidgetList",
    schema=_kind(
        {
            "spec": Schema(
                type="object",
                properties={
                    "size": Schema(type="integer", default=1, minimum=0),
                    "colour": _STRING,
                    "replicas": _INT,
                    "parts": Schema(
                        type="array",
                        list_type="map",
                        list_map_keys=("name",),
                        items=Schema(type="object", required=("name",), properties={"name": _STRING, "count": _INT}),
                    ),
                },
            ),
            "status": Schema(type="object", properties={"phase": _STRING, "replicas": _INT}),
        }
    ),
    has_status=True,
    scale=ScalePaths(spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas")),
    selectable={"spec.colour": ("spec", "colour")},
    custom=True,
    allow_unconditional_update=False,
)
OLD_WIDGET = Resource(
    group="test.io",
    version="v1alpha1",
    kind="Widget",
    plural="widgets",
    list_kind="WidgetList",
    schema=WIDGET.schema,
    has_status=True,
    custom=True,
    storage_version="v1",
)
NAMESPACE = Resource(
    group="",
    version="v1",
    kind="Namespace",
    plural="namespaces",
    list_kind="NamespaceList",
    namespaced=False,
    schema=_kind(
        {"spec": Schema(type="object", preserve_unknown=True), "status": Schema(type="object", preserve_unknown=True)}
    ),
)


class Everyone:
    """Allows everything but what a test forbids."""

    def __init__(self) -> None:
        self.forbidden: set[str] = set()
        self.asked: list[Attributes] = []

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        self.asked.append(attributes)
        return Decision(attributes.verb not in self.forbidden, "")


@pytest.fixture
def authorizer() -> Everyone:
    return Everyone()


@pytest.fixture
async def registry(tmp_path: Path, authorizer: Everyone) -> AsyncIterator[Registry]:
    store = await SqliteStore.open(tmp_path / "data")
    registry = Registry(store, Served([NAMESPACE, WIDGET, OLD_WIDGET]), authorizer)
    client = LocalClient(registry, JANE, field_manager="test")
    await client.create(NAMESPACES, "", {"metadata": {"name": "ns"}})
    yield registry
    await store.close()


@pytest.fixture
def client(registry: Registry) -> LocalClient:
    return LocalClient(registry, JANE, field_manager="test")


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "test.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


def loads(value: bytes) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(value)
    return found
