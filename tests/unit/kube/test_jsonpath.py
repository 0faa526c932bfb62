"""JSONPath as printer columns use it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.jsonpath import JSONPathError, compile_jsonpath, plain_fields, text_of

OBJECT = {
    "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "x", "tier": "back"}},
    "spec": {"replicas": 3, "ports": [80, 443, 8080], "none": None},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "age": 5},
            {"type": "Paused", "status": "False", "age": 7, "ok": True},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.replicas", [3]),
        ("{.spec.replicas}", [3]),
        ("$.spec.replicas", [3]),
        (".spec.none", [None]),
        (".spec.missing", []),
        (".spec.replicas.deeper", []),
        (".metadata.labels.app\\.kubernetes\\.io/name", ["x"]),
        (".metadata.labels['tier']", ["back"]),
        (".metadata.labels['app\\.kubernetes\\.io/name']", ["x"]),
        (".spec.ports[0]", [80]),
        (".spec.ports[-1]", [8080]),
        (".spec.ports[9]", []),
        (".spec.ports[0:2]", [80, 443]),
        (".spec.ports[1:]", [443, 8080]),
        (".spec.ports[:-1]", [80, 443]),
        (".spec.ports[::2]", [80, 8080]),
        (".spec.ports[*]", [80, 443, 8080]),
        (".spec.ports[0,2]", [80, 8080]),
        (".metadata.labels.*", ["x", "back"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?(@.type!="Ready")].type', ["Paused"]),
        (".status.conditions[?(@.age>5)].type", ["Paused"]),
        (".status.conditions[?(@.age<=5)].type", ["Ready"]),
        (".status.conditions[?(@.ok==true)].type", ["Paused"]),
        (".status.conditions[?(@.ok)].type", ["Paused"]),
        ('.status.conditions[?(@.age>"x")].type', []),
        ('.spec[?(@.type=="x")]', []),
        ("..status", [OBJECT["status"], "True", "False"]),
        (".status..type", ["Ready", "Paused"]),
        ('.status.conditions[?(@.type==")]")]', []),
    ],
)
def test_jsonpath_expressions_select_values(path: str, found: list[Any]) -> None:
    assert compile_jsonpath(path)(OBJECT) == found


@pytest.mark.parametrize(
    "path",
    ["spec.replicas", ".a[", ".a[x]", ".a[]", ".a[?(@.b", ".a[?(@.b=1)]", ".a[::0]", ".a[?(@.b==1)", "!", ".a[-]"],
)
def test_invalid_jsonpath_is_rejected(path: str) -> None:
    with pytest.raises(JSONPathError):
        compile_jsonpath(path)


def test_plain_field_paths_are_recognized() -> None:
    assert plain_fields(".spec.nodeName") == ("spec", "nodeName")
    assert plain_fields(".spec.a[0]") is None


def test_jsonpath_results_are_rendered_as_text() -> None:
    assert text_of(["a", 1, True, None, {"b": [1]}]) == 'a 1 true <nil> {"b":[1]}'


@given(st.text(".[]*?()@='\"ab01:,\\ $<", max_size=20))
def test_arbitrary_jsonpath_compiles_or_is_rejected(text: str) -> None:
    try:
        find = compile_jsonpath(text)
    except JSONPathError:
        return
    assert isinstance(find({"a": [{"b": 1}, 0]}), list)
