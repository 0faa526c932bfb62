"""Admission of provisioning Clusters: what could never become a cluster is refused in the words of the manifest."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from remuda.capi.admission.rules import admission
from remuda.kube import names as kube_names
from remuda.kube.admission import ALLOWED, AdmissionResult, Review
from remuda.kube.authorization import MASTERS
from remuda.kube.errors import FieldError, forbidden, invalid, required
from remuda.kube.patches import apply_merge_patch
from remuda.providers.controlplane.rules import configuration, keys, versions
from remuda.providers.controlplane.rules.versions import running
from remuda.providers.shared import distros, names
from remuda.provisioning import fields
from remuda.provisioning.admission import policy, pools, rights, warnings
from remuda.provisioning.types import CLUSTER, Cluster

VERSION, CONFIG = "spec.kubernetesVersion", "spec.rkeConfig"
_RESERVED = re.compile(r"local|c-[a-z0-9]{5}")  # names of management Clusters that have no provisioning Cluster


def complaints(cluster: Cluster) -> list[FieldError]:
    found = _name(cluster.metadata.name)
    found += fields.complaints(cluster)
    found += configuration.environment(cluster.spec.agent_env_vars, "spec.agentEnvVars")
    found += configuration.credential(
        cluster.spec.cloud_credential_secret_name, cluster.metadata.namespace, "spec.cloudCredentialSecretName"
    )
    config = cluster.spec.rke_config
    if config is None:
        found.append(
            required(CONFIG, "it declares how the cluster is created; Remuda does not import existing clusters")
        )
        return found
    found += versions.complaints(cluster.spec.kubernetes_version, VERSION)
    found += configuration.complaints(config, CONFIG)
    version = versions.read(cluster.spec.kubernetes_version)
    found += keys.complaints(config, distros.of(version) if version is not None else None, CONFIG, version)
    found += pools.complaints(cluster, f"{CONFIG}.machinePools")
    if config.infrastructure_ref is not None:
        at = f"{CONFIG}.infrastructureRef"
        found += pools.reference_complaints(config.infrastructure_ref, cluster.metadata.namespace, at)
        if config.cluster_infrastructure is not None:
            found.append(forbidden(f"{CONFIG}.clusterInfrastructure", "cannot be set together with infrastructureRef"))
    return found


def _name(name: str) -> list[FieldError]:
    if _RESERVED.fullmatch(name):
        return [invalid("metadata.name", name, "is reserved for clusters without a provisioning Cluster")]
    return [
        invalid("metadata.name", name, f"is used as a label value of other objects: {text}")
        for text in kube_names.label_value(name)
    ]


def transitions(old: Cluster, new: Cluster) -> list[FieldError]:
    before, after = old.spec.rke_config, new.spec.rke_config
    if before is None or after is None:
        return []
    return [
        *configuration.transitions(before, after, CONFIG),
        *pools.transitions(before.machine_pools, after.machine_pools, f"{CONFIG}.machinePools"),
    ]


def among(review: Review, old: Cluster | None, new: Cluster) -> AdmissionResult:
    # No policy may keep a Cluster from being deleted, or a change of metadata from being written.
    if new.metadata.deleting or (old is not None and old.spec == new.spec):
        return ALLOWED
    errors: list[FieldError] = []
    if old is not None:
        before, after = old.spec.kubernetes_version, new.spec.kubernetes_version
        if before != after:
            errors += versions.transitions(before, after, running(review, new.metadata.name), VERSION)
        errors += policy.complaints(review, old, new)
    return AdmissionResult(errors=tuple(errors), warnings=tuple(warnings.of_cluster(review, new)))


judge = admission(CLUSTER, complaints=complaints, transitions=transitions, among=among)


def admit(review: Review) -> AdmissionResult:
    """Judge a Cluster, and record who made it and who chose its credentials.

    The creator becomes the Cluster's owner, so nobody else may say who it was."""
    verdict = _with_creator(review, judge(review))
    author = rights.record_author(review).patch
    return verdict if author is None else _with_patch(verdict, author)


def _with_creator(review: Review, verdict: AdmissionResult) -> AdmissionResult:
    if review.subresource or review.new is None or MASTERS in review.groups:
        return verdict
    path, said = f"metadata.annotations[{names.CREATOR}]", _creator(review.new)
    made_by = review.user if review.old is None else _creator(review.old)
    if review.old is None or not said:
        # A user who could remove it would own a cluster that no quota counts.
        patch = {"metadata": {"annotations": {names.CREATOR: made_by}}}
        return verdict if said == made_by else _with_patch(verdict, patch)
    if said != made_by:
        why = "the creator of a cluster cannot be changed; to give others access to it: remuda grant"
        return msgspec.structs.replace(verdict, errors=(*verdict.errors, invalid(path, said, why)))
    return verdict


def _creator(obj: dict[str, Any]) -> str:
    return (obj["metadata"].get("annotations") or {}).get(names.CREATOR) or ""


def _with_patch(verdict: AdmissionResult, patch: dict[str, Any]) -> AdmissionResult:
    """Add annotations to a patch. Those that are to be removed are None, which merging patches would drop."""
    merged = apply_merge_patch(verdict.patch or {}, patch)
    merged["metadata"]["annotations"] |= patch["metadata"]["annotations"]
    return msgspec.structs.replace(verdict, patch=merged)
