"""Admission of RKEControlPlanes: what no plan could ever be made of is refused in words.

Most of them are made from a provisioning Cluster, whose own admission says much more; this is for those who write one
themselves.
"""

from __future__ import annotations

from remuda.capi.admission.rules import admission
from remuda.kube.admission import Registration
from remuda.kube.errors import FieldError, forbidden, invalid, required
from remuda.providers.controlplane.distros import BadVersion, parse_version
from remuda.providers.controlplane.types import RKE_CONTROL_PLANE, RKEControlPlane

_VERSION = "spec.kubernetesVersion"


def complaints(plane: RKEControlPlane) -> list[FieldError]:
    found = []
    if not plane.spec.cluster_name:
        found.append(required("spec.clusterName", "the Cluster whose control plane this is"))
    if problem := version_problem(plane.spec.kubernetes_version):
        found.append(invalid(_VERSION, plane.spec.kubernetes_version, problem))
    if plane.spec.unmanaged_config:
        found.append(forbidden("spec.unmanagedConfig", "is not supported: nodes that are not configured need no plan"))
    return found


def version_problem(text: str) -> str:
    """Why no node can run it; empty if one may."""
    try:
        parse_version(text)
    except BadVersion as error:
        return str(error)
    return ""


def transitions(old: RKEControlPlane, new: RKEControlPlane) -> list[FieldError]:
    found = []
    if old.spec.cluster_name and old.spec.cluster_name != new.spec.cluster_name:
        found.append(forbidden("spec.clusterName", "cannot be changed"))
    before, after = old.spec.kubernetes_version, new.spec.kubernetes_version
    if before != after and not version_problem(before) and not version_problem(after):
        was, now = parse_version(before).distro, parse_version(after).distro
        if was != now:
            found.append(forbidden(_VERSION, f"a cluster of {was} cannot become one of {now}"))
    return found


FUNCTIONS: list[Registration] = [
    Registration(
        RKE_CONTROL_PLANE.group,
        RKE_CONTROL_PLANE.plural,
        admission(RKE_CONTROL_PLANE, complaints=complaints, transitions=transitions),
    ),
]
