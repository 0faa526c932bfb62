"""Where a custom resource can be scaled there must be counts, however it is written; a Scale shows and sets them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.kube.client import Target
from tests.unit.apiserver.engine import Engine, definition, loads, refusal

WIDGETS = Target("test.io/v1", "widgets")
DEPLOYMENTS = Target("apps/v1", "deployments")


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data")
    await engine.namespace("ns")
    body = definition()
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scale = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".status.sel"}
    body["spec"]["versions"][0] |= {
        "schema": {"openAPIV3Schema": free},
        "subresources": {"status": {}, "scale": scale},
    }
    await engine.define(body)
    yield engine
    await engine.close()


def widget(spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "w"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "bad", "detail"),
    [
        ({"n": -1}, -1, "should be a non-negative integer"),
        ({"n": 2**31}, 2**31, "should be less than or equal to 2147483647"),
        ({"n": "x"}, 0, ".spec.n accessor error: x is of the type string, expected int64"),
        ({"n": 1.5}, 0, ".spec.n accessor error: 1.5 is of the type float64, expected int64"),
        ({"n": True}, 0, ".spec.n accessor error: true is of the type bool, expected int64"),
        ({"n": None}, 0, ".spec.n accessor error: <nil> is of the type <nil>, expected int64"),
        ("s", 0, ".spec.n accessor error: s is of the type string, expected map[string]interface{}"),
    ],
)
async def test_invalid_scale_replicas_are_rejected(engine: Engine, spec: Any, bad: int, detail: str) -> None:
    error = await refusal(engine.create(WIDGETS, "ns", widget(spec)))
    assert (error.code, error.details["kind"]) == (422, "Widget")
    (cause,) = error.details["causes"]
    assert cause["field"] == ".spec.n"
    assert cause["message"] == f"Invalid value: {bad}: {detail}"


@pytest.mark.parametrize("spec", [{}, {"n": 0}, {"n": 2**31 - 1}, None])
async def test_missing_or_valid_scale_replicas_are_accepted(engine: Engine, spec: Any) -> None:
    await engine.create(WIDGETS, "ns", widget(spec))


async def test_status_update_validates_scale_status_paths(engine: Engine) -> None:
    await engine.create(WIDGETS, "ns", widget({"n": 1}))
    for status, field in (({"n": -1}, ".status.n"), ({"sel": 1}, ".status.sel")):
        error = await refusal(engine.patch(WIDGETS, "ns", "w", {"status": status}, "status"))
        assert [cause["field"] for cause in error.details["causes"]] == [field]
    await engine.patch(WIDGETS, "ns", "w", {"status": {"n": 1, "sel": "a=b"}}, "status")


async def test_scale_subresource_reads_and_writes_replicas(engine: Engine) -> None:
    await engine.create(WIDGETS, "ns", widget({"n": 2, "other": "stays"}))
    await engine.patch(WIDGETS, "ns", "w", {"status": {"n": 1, "sel": "a=b"}}, "status")
    scale = loads(await engine.client.get(WIDGETS, "ns", "w", subresource="scale"))
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "a=b"})
    await engine.patch(WIDGETS, "ns", "w", {"spec": {"replicas": 5}}, "scale")
    assert (engine.find(WIDGETS, "ns", "w") or {})["spec"] == {"n": 5, "other": "stays"}


async def test_scale_validation_error_names_custom_kind_or_scale(engine: Engine) -> None:
    await engine.create(WIDGETS, "ns", widget({"n": 2}))
    error = await refusal(engine.patch(WIDGETS, "ns", "w", {"spec": {"replicas": -1}}, "scale"))
    assert (error.details["kind"], error.details["causes"][0]["field"]) == ("Widget", ".spec.n")
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    await engine.create(DEPLOYMENTS, "ns", body)
    error = await refusal(engine.patch(DEPLOYMENTS, "ns", "d", {"spec": {"replicas": -1}}, "scale"))
    assert (error.details["kind"], error.details["causes"][0]["field"]) == ("Scale", "spec.replicas")
