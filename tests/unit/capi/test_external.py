"""Which version of a kind is spoken, and by which contract, from the labels of its definition alone."""

from __future__ import annotations

import pytest

from remuda.capi.external import Resolved, UnlabelledKind, definition_name, resolve
from remuda.kube.client import Target


@pytest.mark.parametrize(
    ("labels", "version", "known"),
    [
        ({"cluster.x-k8s.io/v1beta2": "v1beta2"}, "v1beta2", "v1beta2"),
        ({"cluster.x-k8s.io/v1beta1": "v1beta1"}, "v1beta1", "v1beta1"),
        ({"cluster.x-k8s.io/v1beta1": "v1", "cluster.x-k8s.io/v1beta2": "v1beta1"}, "v1beta1", "v1beta2"),
        ({"cluster.x-k8s.io/v1beta1": "v1beta1_v1beta10_v1beta2"}, "v1beta10", "v1beta1"),
        ({"cluster.x-k8s.io/v1beta2": "v1alpha1_v1_v2beta1"}, "v1", "v1beta2"),
        ({"cluster.x-k8s.io/v1beta2": "", "cluster.x-k8s.io/v1beta1": "v1_"}, "v1", "v1beta1"),
    ],
)
def test_newest_contract_and_highest_version_are_resolved(labels: dict[str, str], version: str, known: str) -> None:
    found = resolve("dev.example.com", "DevIdentity", labels)
    assert found == Resolved(Target(f"dev.example.com/{version}", "devidentities"), known)


def test_missing_contract_label_error_names_expected_labels() -> None:
    with pytest.raises(UnlabelledKind) as told:
        resolve("dev.example.com", "DevMachine", {"cluster.x-k8s.io/v1alpha4": "v1"})
    assert "devmachines.dev.example.com" in str(told.value)
    assert "cluster.x-k8s.io/v1beta2 or cluster.x-k8s.io/v1beta1" in str(told.value)


def test_definition_name_is_plural_and_group() -> None:
    assert definition_name("dev.example.com", "DevIdentity") == "devidentities.dev.example.com"
