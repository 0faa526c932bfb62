"""Replays what a real kube-apiserver made of sequences of writes, recorded in real_server.json.

Each step there is a request and the answer it got: an object with its managedFields, or a refusal. Times are the
number of the step in seconds. Steps of an update are replayed from the object before to the object after, so that
defaulting, which is not ours, is taken as it was; steps of an apply are replayed from their configuration.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from remuda.apiserver.apply.fieldset import fields_at
from remuda.apiserver.apply.managed import apply, keep_times, on_update
from remuda.apiserver.kinds import builtin_resources
from remuda.kube.errors import StatusError

from .schemas import BY_KIND, WITH_STATUS

BUILT_IN = {resource.kind: resource for resource in builtin_resources()}

RECORDED: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parent / "real_server.json").read_text())
KINDS = {"cm": "ConfigMap", "w": "Widget", "g": "Gadget", "d": "Deployment", "svc": "Service", "role": "Role"}
VERSIONS = {"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "t.dev/v1", "t.dev/v2"}
# Objects of kinds without defaults come out of an apply as they are stored.
WHOLE_OBJECT = {"ConfigMap"}
# Fields of a Service that are filled in after ownership is settled.
ALLOCATED = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
# Of custom resources the real server sorts all keys as strings on the way out.
TYPED = {"ConfigMap", "Deployment", "Service", "Role"}
SET_BY_SERVER = ("uid", "namespace", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")


def _arguments(kind: str, step: dict[str, Any], number: int) -> dict[str, Any]:
    subresource = step.get("subresource", "")
    resource = BUILT_IN.get(kind)
    leaves = resource.status_leaves if resource is not None else ("metadata", "spec")
    if subresource != "status":
        leaves = ("status",) if kind in WITH_STATUS else ()
    return {
        "schema": BY_KIND[kind],
        "manager": step["manager"],
        "api_version": step["apiVersion"],
        "subresource": subresource,
        "now": f"2026-01-01T00:00:{number:02d}Z",
        "reset": fields_at(*leaves),
        "blank": resource.blank if resource is not None else None,
        "versions": VERSIONS,
    }


def _replay_update(kind: str, live: dict[str, Any] | None, step: dict[str, Any], number: int) -> dict[str, Any]:
    new: dict[str, Any] = copy.deepcopy(step["object"])
    new["metadata"].pop("managedFields", None)
    if live is None:
        for name in ALLOCATED:
            new.get("spec", {}).pop(name, None)
    if "given" in step:
        new["metadata"]["managedFields"] = step["given"]
    elif live is not None and "managedFields" in live["metadata"]:
        new["metadata"]["managedFields"] = copy.deepcopy(live["metadata"]["managedFields"])
    on_update(live, new, **_arguments(kind, step, number))
    return new


def _replay_apply(kind: str, live: dict[str, Any] | None, step: dict[str, Any], number: int) -> dict[str, Any]:
    arguments = _arguments(kind, step, number)
    return apply(live, step["config"], force=step.get("force", False), kind=kind, **arguments)


def _served(live: dict[str, Any] | None, version: str) -> dict[str, Any] | None:
    return None if live is None else {**copy.deepcopy(live), "apiVersion": version}


def _comparable(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in SET_BY_SERVER}
    return {**obj, "metadata": metadata}


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_replayed_steps_match_real_kube_apiserver(name: str) -> None:
    kind = KINDS[name.split("-")[0]]
    stored: dict[str, Any] | None = None
    for number, step in enumerate(RECORDED[name]):
        live = _served(stored, step["apiVersion"])
        pristine = copy.deepcopy(live)
        if "object" in step:
            replay = _replay_apply if step["verb"] == "apply" else _replay_update
            result = replay(kind, live, step, number)
            expected = step["object"]
            _settle(live, result, expected)
            assert result["metadata"].get("managedFields") == expected["metadata"].get("managedFields"), (number, step)
            if kind in TYPED:
                assert _in_order(result) == _in_order(expected), (number, step)
            if kind in WHOLE_OBJECT:
                assert _comparable(result) == _comparable(expected)
            stored = expected
        elif step["code"] in (409, 500) or step.get("message", "").startswith(("invalid object type", "metadata.man")):
            _assert_refused(kind, live, step, number)
        assert live == pristine


def _settle(live: dict[str, Any] | None, result: dict[str, Any], expected: dict[str, Any]) -> None:
    """What the registry does in the end, on the object as it would be stored."""
    owners = result["metadata"].get("managedFields")
    if live is None or not owners:
        return
    settled = {**expected, "metadata": {**expected["metadata"], "managedFields": owners}}
    keep_times(live, settled)
    result["metadata"]["managedFields"] = settled["metadata"]["managedFields"]


def _in_order(obj: dict[str, Any]) -> list[str]:
    return [json.dumps(entry["fieldsV1"]) for entry in obj["metadata"].get("managedFields") or []]


def _assert_refused(kind: str, live: dict[str, Any] | None, step: dict[str, Any], number: int) -> None:
    with pytest.raises(StatusError) as refused:
        _replay_apply(kind, live, step, number)
    assert refused.value.code == step["code"]
    # The real server lists errors of several fields in random order.
    assert sorted(refused.value.message.split("\n")) == sorted(step["message"].split("\n"))
    assert refused.value.reason == step.get("reason", "")
    if "causes" in step:
        assert _sorted(refused.value.details["causes"]) == _sorted(step["causes"])


def _sorted(causes: list[dict[str, str]]) -> list[dict[str, str]]:
    """The real server lists conflicts of several managers in random order."""
    return sorted(causes, key=lambda cause: (cause["message"], cause["field"]))
