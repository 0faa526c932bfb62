"""Admission functions never meet lists or texts that are longer than the schema allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.kube.admission import ALLOWED, AdmissionResult, Review
from tests.unit.apiserver.engine import Engine, definition, refusal, version

SCHEMA = {
    "names": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
    "text": {"type": "string", "maxLength": 5},
    "size": {"type": "integer"},
}


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"names": ["a"] * 9000}, "spec.names: Too many: 9000: must have at most 3 items"),
        ({"text": "a" * 9000}, "spec.text: Too long: may not be more than 5 bytes"),
    ],
)
async def test_oversized_object_is_refused_before_admission(
    tmp_path: Path, spec: dict[str, Any], complaint: str
) -> None:
    engine = await Engine.open(tmp_path)
    seen: list[str] = []

    def note(review: Review) -> AdmissionResult:
        seen.append(review.name)
        return ALLOWED

    try:
        crd = definition()
        crd["spec"]["versions"] = [version("v1", storage=True, spec=SCHEMA)]
        target = await engine.define(crd)
        engine.registry.admission.register("test.io", "widgets", note)
        body = {"apiVersion": "test.io/v1", "kind": "Widget", "metadata": {"name": "large"}, "spec": spec}
        error = await refusal(engine.client.create(target, "default", body))
        assert (error.code, complaint in error.message) == (422, True), error.message
        assert seen == []
        # What is wrong in another way is still admission's to judge first: it may correct it.
        wrong = {**body, "metadata": {"name": "wrong"}, "spec": {"size": "x"}}
        assert (await refusal(engine.client.create(target, "default", wrong))).code == 422
        assert seen == ["wrong"]
    finally:
        await engine.close()
