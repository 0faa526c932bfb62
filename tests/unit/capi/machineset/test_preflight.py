from __future__ import annotations

import msgspec
import pytest

from remuda.capi import names
from remuda.capi.contract import ContractError, ProviderObject
from remuda.capi.machineset import preflight
from remuda.capi.machineset.preflight import ControlPlane
from remuda.capi.types import Bootstrap, MachineSet, MachineSetSpec, MachineSpec, MachineTemplate, Reference
from remuda.kube.client import Target

KUBEADM = Bootstrap(
    config_ref=Reference(api_group="bootstrap.cluster.x-k8s.io", kind="KubeadmConfigTemplate", name="t")
)


def of_version(version: str, bootstrap: Bootstrap) -> MachineSet:
    return MachineSet(
        spec=MachineSetSpec(template=MachineTemplate(spec=MachineSpec(version=version, bootstrap=bootstrap)))
    )


def failed(version: str, control_plane: ControlPlane, skip: tuple[str, ...] = (), kubeadm: bool = False) -> list[str]:
    found = preflight.complaints(of_version(version, KUBEADM if kubeadm else Bootstrap()), control_plane, skip)
    return [sentence.split('"')[1] for sentence in found]


@pytest.mark.parametrize(
    ("mine", "theirs", "complaints"),
    [
        ("v1.35.0", "v1.35.4", []),
        ("v1.35.9", "v1.35.4", []),
        ("v1.32.0", "v1.35.4", []),
        ("v1.31.9", "v1.35.4", ["KubernetesVersionSkew"]),
        ("v1.36.0", "v1.35.4", ["KubernetesVersionSkew"]),
        ("v2.35.0", "v1.35.4", ["KubernetesVersionSkew"]),
        ("", "v1.35.4", []),
        ("v1.20.0", "", []),
    ],
)
def test_version_skew_beyond_policy_fails_preflight(mine: str, theirs: str, complaints: list[str]) -> None:
    assert failed(mine, ControlPlane("cp", theirs)) == complaints


def test_kubeadm_version_skew_fails_preflight() -> None:
    assert failed("v1.34.0", ControlPlane("cp", "v1.35.0"), kubeadm=True) == ["KubeadmVersionSkew"]
    assert failed("v1.35.1", ControlPlane("cp", "v1.35.0"), kubeadm=True) == []
    assert failed("v1.34.0", ControlPlane("cp", "v1.35.0")) == []


@pytest.mark.parametrize("state", ["is_provisioning", "is_upgrading"])
def test_unstable_control_plane_fails_preflight(state: str) -> None:
    control_plane = msgspec.structs.replace(ControlPlane("FooControlPlane ns/cp", "v1.35.0"), **{state: True})
    [found] = preflight.complaints(of_version("v1.35.0", Bootstrap()), control_plane)
    assert found == f'FooControlPlane ns/cp is {state[3:]} ("ControlPlaneIsStable" preflight check failed)'


def test_checks_can_be_skipped() -> None:
    bad = ControlPlane("cp", "v1.35.0", is_upgrading=True)
    every = ["ControlPlaneIsStable", "KubernetesVersionSkew", "KubeadmVersionSkew"]
    assert failed("v1.36.0", bad, kubeadm=True) == every
    for check in every:
        assert failed("v1.36.0", bad, (check,), kubeadm=True) == [one for one in every if one != check]
    assert failed("v1.36.0", bad, ("All",), kubeadm=True) == []


def test_skipped_preflight_checks_are_read_from_annotations() -> None:
    notes = [{names.SKIP_PREFLIGHT_CHECKS: "A, B"}, {}, {names.SKIP_PREFLIGHT_CHECKS: "C,"}]
    assert preflight.skipped(*notes) == {"A", "B", "C"}


def test_invalid_control_plane_version_raises_contract_error() -> None:
    with pytest.raises(ContractError, match="not a semantic version"):
        preflight.complaints(of_version("v1.35.0", Bootstrap()), ControlPlane("cp", "latest"))


def test_control_plane_facts_detect_upgrade() -> None:
    obj = {
        "kind": "FooControlPlane",
        "metadata": {"name": "cp", "namespace": "ns"},
        "spec": {"version": "v1.35.0"},
        "status": {"versions": [{"version": "v1.34.0", "replicas": 1}]},
    }
    found = preflight.facts(ProviderObject(msgspec.json.encode(obj), Target("g/v1", "foos"), "v1beta2"))
    assert found == ControlPlane("FooControlPlane ns/cp", "v1.35.0", is_upgrading=True)
