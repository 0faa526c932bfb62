"""What is said of manifests written for Rancher, where all they need is there: nothing, unless they state it."""

from __future__ import annotations

import pytest

from remuda.providers.shared.distros import parse_version
from tests.lab.rancher_manifests import MANIFESTS, Manifest, node_drivers, target
from tests.unit.provisioning.judging import World, verdict


def world(manifest: Manifest) -> World:
    found = World(*(("nodedrivers", driver) for driver in node_drivers()))
    for obj in manifest.objects:
        found.add(target(obj).plural, obj)
    return found


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: each.name)
def test_manifest_gets_exactly_its_stated_errors_and_warnings(manifest: Manifest) -> None:
    found = verdict(manifest.cluster, world=world(manifest))
    errors = [str(error) for error in found.errors]
    assert len(errors) == len(manifest.refused)
    assert [words for words in manifest.refused if not any(words in error for error in errors)] == []
    assert len(found.warnings) == len(manifest.warned)
    assert [words for words in manifest.warned if not any(words in said for said in found.warnings)] == []


def test_manifests_cover_distributions_drivers_and_outcomes() -> None:
    admitted = [each for each in MANIFESTS if not each.refused]
    versions = [parse_version(each.cluster["spec"]["kubernetesVersion"]) for each in admitted]
    assert {version.distro for version in versions} == {"k3s", "rke2"}
    kinds = {obj["kind"] for each in admitted for obj in each.objects if obj["kind"].endswith("Config")}
    assert len(kinds) >= 6
    assert len(admitted) >= 8
    assert any(each.refused for each in MANIFESTS)
    assert any(each.warned for each in MANIFESTS)
