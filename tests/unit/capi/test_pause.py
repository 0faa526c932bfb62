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
def test_paused_is_false_without_pause_or_annotation(cluster: Cluster | None) -> None:
    found = paused(cluster, ObjectMeta(annotations={"other": ""}))
    assert (found.type, found.status, found.reason, found.message) == ("Paused", "False", "NotPaused", "")
    assert not is_paused(cluster, ObjectMeta())


@pytest.mark.parametrize("value", ["", "true", "false"])
def test_paused_annotation_pauses_regardless_of_value(value: str) -> None:
    found = paused(None, ObjectMeta(annotations={ANNOTATION: value}))
    assert (found.status, found.reason) == ("True", "Paused")
    assert found.message == f"the object has the annotation {ANNOTATION}"


def test_paused_cluster_pauses_its_objects() -> None:
    assert is_paused(Cluster(Spec(paused=True)), ObjectMeta())
    assert paused(Cluster(Spec(paused=True)), ObjectMeta()).message == "spec.paused of the Cluster is true"


def test_paused_message_names_both_causes() -> None:
    found = paused(Cluster(Spec(paused=True)), ObjectMeta(annotations={ANNOTATION: ""}))
    assert found.message == f"spec.paused of the Cluster is true and the object has the annotation {ANNOTATION}"
