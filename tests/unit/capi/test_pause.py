"""Who is paused, and what is said about it."""

from __future__ import annotations

import msgspec
import pytest

from remuda.capi.pause import is_paused, paused
from remuda.kube.objects import ObjectMeta

ANNOTATION = "cluster.x-k8s.io/paused"


class Spec(msgspec.Struct):
    paused: bool | None = None


class Cluster(msgspec.Struct):
    spec: Spec


@pytest.mark.parametrize("cluster", [None, Cluster(Spec()), Cluster(Spec(paused=False))])
def test_nothing_paused(cluster: Cluster | None) -> None:
    found = paused(cluster, ObjectMeta(annotations={"other": ""}))
    assert (found.type, found.status, found.reason, found.message) == ("Paused", "False", "NotPaused", "")
    assert not is_paused(cluster, ObjectMeta())


@pytest.mark.parametrize("value", ["", "true", "false"])
def test_the_annotation_pauses_whatever_it_says(value: str) -> None:
    found = paused(None, ObjectMeta(annotations={ANNOTATION: value}))
    assert (found.status, found.reason) == ("True", "Paused")
    assert found.message == f"the object has the annotation {ANNOTATION}"


def test_the_cluster_pauses_what_belongs_to_it() -> None:
    assert is_paused(Cluster(Spec(paused=True)), ObjectMeta())
    assert paused(Cluster(Spec(paused=True)), ObjectMeta()).message == "spec.paused of the Cluster is true"


def test_both_causes_are_told() -> None:
    found = paused(Cluster(Spec(paused=True)), ObjectMeta(annotations={ANNOTATION: ""}))
    assert found.message == f"spec.paused of the Cluster is true and the object has the annotation {ANNOTATION}"
