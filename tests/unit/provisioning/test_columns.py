"""Columns of `kubectl get` for clusters: each kind shows whether a cluster is ready, and why it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from remuda.providers.controlplane import definitions as control_plane
from remuda.provisioning import definitions as provisioning

Json = Mapping[str, Any]

_READY = '.status.conditions[?(@.type=="Ready")].'
WHY = {"Ready": f"{_READY}status", "Reason": f"{_READY}reason", "Message": f"{_READY}message"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "clusters.provisioning.cattle.io": WHY,
    "clusters.management.cattle.io": {"Nodes": ".status.info.nodeCount", **WHY},
    "rkecontrolplanes.rke.cattle.io": {
        "Servers": ".status.replicas",
        "Servers Ready": ".status.readyReplicas",
        "Servers Up-to-date": ".status.upToDateReplicas",
        **WHY,
    },
}


def columns(name: str) -> dict[str, Json]:
    """Printer columns of a definition, by name."""
    every = [*provisioning.definitions(), *control_plane.definitions()]
    (found,) = [one for one in every if one["metadata"]["name"] == name]
    (version,) = found["spec"]["versions"]
    return {one["name"]: one for one in version["additionalPrinterColumns"]}


@pytest.mark.parametrize("name", KINDS)
def test_columns_show_readiness_and_its_reason(name: str) -> None:
    found = columns(name)
    assert {one: found[one]["jsonPath"] for one in KINDS[name] if one in found} == KINDS[name]
    assert [one for one in ("Ready", "Reason") if found[one].get("priority")] == []
    assert found["Message"]["priority"] > 0  # with -o wide only: it is a sentence
