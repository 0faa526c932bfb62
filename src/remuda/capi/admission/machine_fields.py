"""Defaults and validation shared by all kinds that describe Machines: Machine, MachineSet and MachineDeployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from remuda.capi import amounts, machine_names, names, versions
from remuda.capi.types import MachineNaming, MachineSpec, MachineTaint, MachineTemplate, Selector
from remuda.kube import names as kube_names
from remuda.kube.errors import FieldError, forbidden, invalid, required
from remuda.kube.objects import ObjectMeta
from remuda.kube.requirements import SelectorError

PREFLIGHT_CHECKS = (
    "All",
    "ControlPlaneIsStable",
    "ControlPlaneVersionSkew",
    "KubeadmVersionSkew",
    "KubernetesVersionSkew",
)

_RESERVED_TAINTS = {
    names.UNINITIALIZED_TAINT: "is set and removed by Cluster API itself",
    names.OUTDATED_REVISION_TAINT: "is set and removed by Cluster API itself",
    "node-role.kubernetes.io/master": "has no effect since Kubernetes 1.24",
}
_RESERVED_PREFIXES = {
    "node.kubernetes.io/": "belongs to Kubernetes itself, except node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/": "belongs to cloud controllers",
}
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_CONTROL_PLANE_TAINT = "node-role.kubernetes.io/control-plane"


class ReplicatedSpec(Protocol):
    @property
    def cluster_name(self) -> str: ...
    @property
    def replicas(self) -> int | None: ...
    @property
    def selector(self) -> Selector: ...
    @property
    def template(self) -> MachineTemplate: ...
    @property
    def machine_naming(self) -> MachineNaming: ...


class Replicated(Protocol):
    """A MachineSet or a MachineDeployment."""

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def spec(self) -> ReplicatedSpec: ...


def cluster_label(cluster: str) -> dict[str, Any]:
    """Return the metadata patch that labels an object with its Cluster."""
    return {"labels": {names.CLUSTER_NAME: cluster}} if cluster else {}


def prefixed_version(spec: MachineSpec) -> dict[str, str]:
    """Return the patch of a Machine's spec that turns 1.35.2 into v1.35.2."""
    return {"version": f"v{spec.version}"} if spec.version and not spec.version.startswith("v") else {}


def own_labels(new: Replicated, label: str) -> dict[str, str]:
    """Return the label that distinguishes the object's Machines if the spec has no selector; empty if it has one, or
    while the object has no name yet."""
    if not new.spec.selector.empty or not new.metadata.name:
        return {}
    return {label: names.label_value(new.metadata.name)}


def default_replicas(new: Replicated, old: Replicated | None) -> int | None:
    """Return the number of replicas, with a default if the spec sets none: the old number within the autoscaler's
    bounds, else the autoscaler's minimum; without bounds the old number, else one.

    Returns None if the autoscaler's bounds cannot be parsed, which validation reports separately.
    """
    if new.spec.replicas is not None:
        return new.spec.replicas
    before = old.spec.replicas if old is not None else None
    bounds = _autoscaler_bounds(new.metadata.annotations)
    if bounds is None:
        return before if before is not None else 1
    try:
        least, most = (int(bound) for bound in bounds)
    except ValueError:
        return None
    return least if before is None else max(least, min(before, most))


def _autoscaler_bounds(annotations: Mapping[str, str]) -> tuple[str, str] | None:
    least, most = annotations.get(names.AUTOSCALER_MIN_SIZE), annotations.get(names.AUTOSCALER_MAX_SIZE)
    return (least, most) if least is not None and most is not None else None


def replicated_complaints(value: Replicated) -> list[FieldError]:
    """Validate a MachineSet or a MachineDeployment; return the errors."""
    spec = value.spec
    found = _selector_complaints(spec.selector, spec.template.metadata.labels)
    found += _replica_complaints(value)
    if spec.cluster_name != spec.template.spec.cluster_name:
        same = f"must be the same as spec.template.spec.clusterName, which is {spec.template.spec.cluster_name!r}"
        found.append(invalid("spec.clusterName", spec.cluster_name, same))
    found += _naming_complaints(spec.machine_naming.template)
    found += _preflight_complaints(value.metadata.annotations)
    found += kube_names.validate_labels(spec.template.metadata.labels, "spec.template.metadata.labels")
    found += kube_names.validate_annotations(spec.template.metadata.annotations, "spec.template.metadata.annotations")
    return found + machine_complaints(spec.template.spec, "spec.template.spec")


def machine_complaints(
    spec: MachineSpec, path: str, *, control_plane: bool = False, of_pool: bool = False
) -> list[FieldError]:
    """Validate a Machine's spec, also inside a template; return the errors. A pool owns its bootstrap data, its
    Machines do not, so `of_pool` drops that requirement."""
    found = []
    if spec.bootstrap.config_ref is None and spec.bootstrap.data_secret_name is None and not of_pool:
        found.append(required(f"{path}.bootstrap", "either configRef or dataSecretName must be set"))
    if spec.version:
        found += _version_complaints(spec.version, f"{path}.version")
    return found + _taint_complaints(spec.taints, f"{path}.taints", control_plane)


def immutable_cluster(old: str, new: str) -> list[FieldError]:
    return [forbidden("spec.clusterName", "field is immutable")] if old != new else []


def selector_complaints(selector: Selector, path: str) -> list[FieldError]:
    """Return an error if the selector is invalid."""
    try:
        selector.compile()
    except SelectorError as error:
        return [invalid(path, msgspec.to_builtins(selector), str(error))]
    return []


def amount_complaints(amount: int | str | None, path: str) -> list[FieldError]:
    """Return an error unless the amount is unset, a non-negative number or a percentage."""
    if amount is None:
        return []
    try:
        number = amounts.resolve(amount, 100, up=True)
    except ValueError:
        return [invalid(path, amount, "must be a number or a percentage, as in 1 or '25%'")]
    return [invalid(path, amount, "must not be negative")] if number < 0 else []


def _selector_complaints(selector: Selector, labels: Mapping[str, str]) -> list[FieldError]:
    if selector.empty:
        return [
            required("spec.selector", "its default is derived from metadata.name, which is not set yet: set a selector")
        ]
    unclear = selector_complaints(selector, "spec.selector")
    if unclear:
        return unclear
    compiled = selector.compile()
    if compiled.matches(labels):
        return []
    return [invalid("spec.template.metadata.labels", dict(labels), f"must match spec.selector {str(compiled)!r}")]


def _replica_complaints(value: Replicated) -> list[FieldError]:
    if value.spec.replicas is not None:
        negative = value.spec.replicas < 0
        return [invalid("spec.replicas", value.spec.replicas, "must not be negative")] if negative else []
    keys = (names.AUTOSCALER_MIN_SIZE, names.AUTOSCALER_MAX_SIZE)
    return [
        invalid(f"metadata.annotations[{key}]", value.metadata.annotations.get(key, ""), "must be a whole number")
        for key in keys
        if not value.metadata.annotations.get(key, "").isdecimal()
    ]


def _naming_complaints(template: str) -> list[FieldError]:
    if not template:
        return []
    path = "spec.machineNaming.template"
    try:
        sample = machine_names.render(template, cluster="cluster", machine_set="machineset", random="x4d2f")
    except machine_names.NamingError as error:
        return [invalid(path, template, str(error))]
    return [
        invalid(path, template, f"renders names like {sample!r}, which are invalid: {complaint}")
        for complaint in kube_names.dns1123_subdomain(sample)
    ]


def _preflight_complaints(annotations: Mapping[str, str]) -> list[FieldError]:
    text = annotations.get(names.SKIP_PREFLIGHT_CHECKS, "")
    unknown = [name for part in text.split(",") if (name := part.strip()) not in PREFLIGHT_CHECKS] if text else []
    if not unknown:
        return []
    known = f"has unknown checks: {', '.join(unknown)}; supported checks: {', '.join(PREFLIGHT_CHECKS)}"
    return [invalid(f"metadata.annotations[{names.SKIP_PREFLIGHT_CHECKS}]", text, known)]


def _version_complaints(version: str, path: str) -> list[FieldError]:
    try:
        versions.semantic(version)
    except ValueError:
        return [invalid(path, version, "must be a semantic version, as in v1.35.2")]
    return []


def _taint_complaints(taints: Sequence[MachineTaint], path: str, control_plane: bool) -> list[FieldError]:
    found = []
    for index, taint in enumerate(taints):
        at = f"{path}[{index}].key"
        reserved = _reserved(taint.key)
        if reserved:
            found.append(invalid(at, taint.key, f"cannot be used: it {reserved}"))
        elif taint.key == _CONTROL_PLANE_TAINT and not control_plane:
            found.append(invalid(at, taint.key, "cannot be used on worker Machines"))
        found += [invalid(at, taint.key, complaint) for complaint in kube_names.qualified_name(taint.key)]
    return found


def _reserved(key: str) -> str:
    """Return the reason why users must not set this taint, or an empty string if they may."""
    if key == _OUT_OF_SERVICE:
        return ""
    by_prefix = (why for prefix, why in _RESERVED_PREFIXES.items() if key.startswith(prefix))
    return _RESERVED_TAINTS.get(key) or next(by_prefix, "")
