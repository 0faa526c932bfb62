"""Admission of RKEControlPlanes: deny specs that no plan could ever be rendered from.

Most control planes are created from a provisioning Cluster, whose own admission checks all of this and more. These
rules apply to users who write an RKEControlPlane themselves.
"""

from __future__ import annotations

from remuda.capi.admission.rules import admission, read
from remuda.kube.admission import ALLOWED, AdmissionRegistration, AdmissionResult, Review
from remuda.kube.authorization import RequiredAccess
from remuda.kube.errors import FieldError, forbidden, required
from remuda.providers.controlplane import references
from remuda.providers.controlplane.rules import configuration, fields, keys, versions
from remuda.providers.controlplane.rules.versions import running
from remuda.providers.shared import distros
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane

_VERSION = "spec.kubernetesVersion"


def complaints(plane: RKEControlPlane) -> list[FieldError]:
    spec = plane.spec
    found = versions.complaints(spec.kubernetes_version, _VERSION)
    if not spec.cluster_name:
        found.append(required("spec.clusterName", "the Cluster whose control plane this is"))
    found += fields.complaints(fields.CONTROL_PLANE, spec, "spec")
    found += configuration.complaints(spec, "spec")
    found += configuration.environment(spec.agent_env_vars, "spec.agentEnvVars")
    version = versions.read(spec.kubernetes_version)
    return found + keys.complaints(spec, distros.of(version) if version is not None else None, "spec", version)


def transitions(old: RKEControlPlane, new: RKEControlPlane) -> list[FieldError]:
    found = configuration.transitions(old.spec, new.spec, "spec")
    if old.spec.cluster_name and old.spec.cluster_name != new.spec.cluster_name:
        found.append(forbidden("spec.clusterName", "cannot be changed"))
    return found


def among(review: Review, old: RKEControlPlane | None, new: RKEControlPlane) -> AdmissionResult:
    if old is not None and old.spec == new.spec:
        return ALLOWED
    text, errors = new.spec.kubernetes_version, []
    if old is not None and old.spec.kubernetes_version != text:
        nodes = running(review, new.spec.cluster_name)
        errors = versions.transitions(old.spec.kubernetes_version, text, nodes, _VERSION)
    said = [*versions.warnings(text, _VERSION), *fields.warnings(fields.CONTROL_PLANE, new.spec, "spec")]
    version = versions.read(text)
    if version is not None:
        said += keys.warnings(new.spec, distros.of(version), "spec", version)
    return AdmissionResult(errors=tuple(errors), warnings=tuple(said))


def needs(review: Review) -> list[RequiredAccess]:
    """Return the rights to the Secrets and ConfigMaps that a write newly names."""
    if review.subresource or review.new is None or review.by_manager:
        return []
    old, new = read(RKE_CONTROL_PLANE, review.old), read(RKE_CONTROL_PLANE, review.new)
    if new is None:
        return []
    return references.added(old.spec if old is not None else None, new.spec, review.namespace, "spec")


def version_problem(text: str) -> str:
    """Return why no node can run this version; empty if a node may."""
    return "; ".join(error.detail for error in versions.complaints(text, _VERSION))


FUNCTIONS: list[AdmissionRegistration] = [
    AdmissionRegistration(
        RKE_CONTROL_PLANE.group,
        RKE_CONTROL_PLANE.plural,
        admission(RKE_CONTROL_PLANE, complaints=complaints, transitions=transitions, among=among),
        needs=needs,
    ),
]
