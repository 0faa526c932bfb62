"""Preflight checks of a MachineSet before it creates Machines: joining a control plane that is not ready only fails.

The functions are pure: they take the facts of the control plane and return errors, each a sentence for a condition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from remuda.capi import contract, names, versions
from remuda.capi.contract import ContractError, ProviderObject
from remuda.capi.types import MachineSet

STABLE = "ControlPlaneIsStable"
KUBERNETES_SKEW = "KubernetesVersionSkew"
KUBEADM_SKEW = "KubeadmVersionSkew"
ALL = "All"

_KUBEADM = ("bootstrap.cluster.x-k8s.io", "KubeadmConfigTemplate")
_MOST_MINORS_BEHIND = 3  # version skew policy of Kubernetes for kubelets


class ControlPlane(msgspec.Struct, frozen=True):
    name: str  # as a person looks for it
    version: str = ""
    is_provisioning: bool = False
    is_upgrading: bool = False


def facts(obj: ProviderObject) -> ControlPlane:
    """Raises ContractError."""
    return ControlPlane(
        str(obj), contract.desired_version(obj), contract.is_provisioning(obj), contract.is_upgrading(obj)
    )


def skipped(*annotations: Mapping[str, str]) -> set[str]:
    """The checks the user turned off, on the MachineSet or on its bootstrap template."""
    listed = (found.get(names.SKIP_PREFLIGHT_CHECKS, "") for found in annotations)
    return {check.strip() for text in listed for check in text.split(",") if check.strip()}


def complaints(machine_set: MachineSet, control_plane: ControlPlane, skip: Collection[str] = ()) -> list[str]:
    """Return the reasons to create no Machines now; none if the control plane has no version to compare with."""
    if ALL in skip or not control_plane.version:
        return []
    found = []
    if STABLE not in skip:
        found += _unstable(control_plane)
    if machine_set.spec.template.spec.version:
        found += _skewed(machine_set, control_plane, skip)
    return found


def _unstable(control_plane: ControlPlane) -> list[str]:
    doing = "provisioning" if control_plane.is_provisioning else "upgrading" if control_plane.is_upgrading else ""
    return [_sentence(f"{control_plane.name} is {doing}", STABLE)] if doing else []


def _skewed(machine_set: MachineSet, control_plane: ControlPlane, skip: Collection[str]) -> list[str]:
    wanted = machine_set.spec.template.spec.version
    mine, theirs = _semantic(wanted), _semantic(control_plane.version)
    both = f"MachineSet version ({wanted}) and {control_plane.name} version ({control_plane.version})"
    found = []
    if KUBERNETES_SKEW not in skip:
        if mine[:2] > theirs[:2]:
            found.append(_sentence(f"{both}: Machines must not be newer than the control plane", KUBERNETES_SKEW))
        elif mine[0] != theirs[0] or mine[1] < theirs[1] - _MOST_MINORS_BEHIND:
            behind = f"{both}: Machines must not be more than {_MOST_MINORS_BEHIND} minor versions behind"
            found.append(_sentence(behind, KUBERNETES_SKEW))
    if KUBEADM_SKEW not in skip and _by_kubeadm(machine_set) and mine[:2] != theirs[:2]:
        found.append(_sentence(f"{both}: kubeadm joins only within one minor version", KUBEADM_SKEW))
    return found


def _by_kubeadm(machine_set: MachineSet) -> bool:
    ref = machine_set.spec.template.spec.bootstrap.config_ref
    return ref is not None and (ref.api_group, ref.kind) == _KUBEADM


def _semantic(version: str) -> versions.SemanticOrder:
    try:
        return versions.semantic(version)
    except ValueError as error:
        raise ContractError(str(error)) from None


def _sentence(what: str, check: str) -> str:
    return f'{what} ("{check}" preflight check failed)'
