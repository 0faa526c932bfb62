"""Versions in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.capi import versions

RELEASES = [
    "v1.30.0-alpha.1",
    "v1.30.0-alpha.beta",
    "v1.30.0-beta.2",
    "v1.30.0-beta.11",
    "v1.30.0-rc.1",
    "v1.30.0",
    "v1.30.0+k3s1",
    "v1.30.0+k3s2",
    "v1.30.2",
    "v1.30.10",
    "v1.31.0+rke2r1",
    "v2.0.0",
]
APIS = [
    "foo2",
    "foo10",
    "foo1",
    "v1alpha1",
    "v1alpha2",
    "v2alpha1",
    "v1beta1",
    "v1beta2",
    "v1beta10",
    "v1",
    "v2",
    "v10",
]


@given(st.permutations(RELEASES))
def test_semantic_versions_are_ordered(shuffled: list[str]) -> None:
    assert sorted(shuffled, key=versions.semantic) == RELEASES


def test_version_prefix_v_is_optional() -> None:
    assert versions.semantic("1.2.3") == versions.semantic("v1.2.3")


@pytest.mark.parametrize("text", ["", "v1", "v1.30", "latest", "v1.30.0 ", "v1.30.x"])
def test_non_semantic_version_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a semantic version"):
        versions.semantic(text)


@given(st.permutations(APIS))
def test_api_versions_are_ordered(shuffled: list[str]) -> None:
    assert sorted(shuffled, key=versions.api) == APIS


def test_non_version_api_names_sort_below_versions_and_alphabetically() -> None:
    assert max(["foo10", "foo1", "v1alpha1"], key=versions.api) == "v1alpha1"
    assert max(["foo1", "bar1"], key=versions.api) == "bar1"
