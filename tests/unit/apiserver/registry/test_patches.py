"""What may come out of a patch: still this object, still of this kind."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.apiserver.client import LocalClient
from remuda.apiserver.registry.calls import FieldValidation, WriteOptions
from remuda.apiserver.registry.registry import Registry
from remuda.kube.errors import FieldError
from tests.unit.apiserver.registry.conftest import JANE, NAMESPACES, WIDGET, WIDGETS, loads, widget
from tests.unit.apiserver.registry.test_writes import refused


@pytest.mark.parametrize(
    ("patch", "code", "said"),
    [
        ({"kind": "Gadget"}, 422, 'Gadget.test.io "w" is invalid: kind: Invalid value: "Gadget": must be Widget'),
        ({"apiVersion": "test.io/v9"}, 422, 'apiVersion: Invalid value: "test.io/v9": must be test.io/v1'),
        ({"kind": None}, 422, "Object 'Kind' is missing"),
        ({"apiVersion": None}, 500, "Object 'apiVersion' is missing"),
        ({"metadata": None}, 400, "the name of the object (w based on URL) was undeterminable"),
        ({"metadata": "x"}, 422, "patch: Invalid value: "),
        ({"metadata": {"labels": {"x": 5}}}, 422, "patch: Invalid value: "),
        ({"metadata": {"name": "v"}}, 400, "the name of the object (v) does not match the name on the URL (w)"),
        ({"metadata": {"namespace": "other"}}, 400, "does not match the namespace sent on the request"),
        ({"metadata": {"uid": "x"}}, 422, 'metadata.uid: Invalid value: "x": field is immutable'),
        ({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}, 422, "metadata.deletionTimestamp"),
    ],
)
async def test_patch_cannot_change_identity_of_custom_object(
    client: LocalClient, patch: Any, code: int, said: str
) -> None:
    before = await client.create(WIDGETS, "ns", widget(colour="red"))
    error = await refused(client.patch(WIDGETS, "ns", "w", patch))
    assert (error.code, said in error.message) == (code, True), error.message
    assert await client.get(WIDGETS, "ns", "w") == before


@pytest.mark.parametrize("patch", [{"kind": "Pod"}, {"apiVersion": "v9"}, {"kind": 5}])
async def test_patch_cannot_change_kind_of_built_in_object(client: LocalClient, patch: Any) -> None:
    error = await refused(client.patch(NAMESPACES, "", "ns", patch))
    assert (error.code, error.details["causes"][0]["field"]) == (422, "patch")
    assert loads(await client.get(NAMESPACES, "", "ns"))["kind"] == "Namespace"


async def test_patch_removing_kind_restores_kind(client: LocalClient) -> None:
    for kind in ("merge", "strategic"):
        assert loads(await client.patch(NAMESPACES, "", "ns", {"kind": None}, kind=kind))["kind"] == "Namespace"


async def test_patch_removing_api_version_is_rejected(client: LocalClient) -> None:
    error = await refused(client.patch(NAMESPACES, "", "ns", {"apiVersion": None}))
    assert (error.code, "name must be provided" in error.message) == (400, True)


async def test_strategic_patch_ignores_kind_and_api_version(client: LocalClient) -> None:
    patch = {"kind": "Pod", "apiVersion": "v9", "metadata": {"labels": {"x": "1"}}}
    after = loads(await client.patch(NAMESPACES, "", "ns", patch, kind="strategic"))
    assert (after["kind"], after["apiVersion"], after["metadata"]["labels"]["x"]) == ("Namespace", "v1", "1")


async def test_patch_removing_namespace_keeps_namespace(client: LocalClient) -> None:
    await client.create(WIDGETS, "ns", widget())
    after = loads(await client.patch(WIDGETS, "ns", "w", {"metadata": {"namespace": None}}))
    assert after["metadata"]["namespace"] == "ns"


async def _patch(registry: Registry, patch: Any, validation: FieldValidation, complaints: list[str]) -> list[str]:
    resource = registry.resources.find("test.io", "v1", "widgets")
    assert resource is not None
    call = registry.authorize(JANE, "patch", resource, "ns", "w")
    options = WriteOptions(field_validation=validation, field_manager="a")
    await registry.patch(call, "merge", patch, options, complaints)
    return call.warnings


async def test_patch_and_result_warnings_are_combined(client: LocalClient, registry: Registry) -> None:
    await client.create(WIDGETS, "ns", widget())
    patch = {"spec": {"shape": "round"}}
    said = ['duplicate field "spec.shape"', 'unknown field "spec.shape"']
    assert await _patch(registry, patch, "Warn", said[:1]) == said
    assert await _patch(registry, patch, "Ignore", said[:1]) == []
    error = await refused(_patch(registry, patch, "Strict", said[:1]))
    assert error.code == 422
    assert error.message.endswith(f"strict decoding error: {', '.join(said)}")
    assert '\\"shape\\":\\"round\\"' in error.message


async def test_cel_rules_are_skipped_once_object_is_known_valid(client: LocalClient, registry: Registry) -> None:
    class Rules:
        def validate(self, obj: Any, old: Any, path: str, warnings: list[str] | None = None) -> list[FieldError]:
            looked.append(warnings is not None and old is not None)
            if warnings is not None and obj["spec"]["size"] > 9:
                warnings.append("too large")
            return []

    looked: list[bool] = []
    await client.create(WIDGETS, "ns", widget(size=50))
    registry.resources.shape(WIDGET).structural.rules = Rules()
    for colour in ("red", "blue"):
        assert await _patch(registry, {"spec": {"colour": colour}}, "Warn", []) == ["too large"]
    assert await _patch(registry, {"spec": {"size": 5}}, "Warn", []) == []
    assert await _patch(registry, {"spec": {"colour": "red"}}, "Warn", []) == []
    assert looked == [True, True, True, False]


async def test_patch_making_object_too_large_is_rejected(client: LocalClient) -> None:
    await client.create(NAMESPACES, "", {"metadata": {"name": "grown"}})
    labels = [{f"k{n}-{part}": "v" for n in range(6000)} for part in range(2)]
    await client.patch(NAMESPACES, "", "grown", {"metadata": {"labels": labels[0]}})
    error = await refused(client.patch(NAMESPACES, "", "grown", {"metadata": {"labels": labels[1]}}))
    assert (error.code, error.reason) == (413, "RequestEntityTooLarge")
    assert "The allowed maximum number of members in an object is 10000, got 12000" in error.message
