"""Objects of a cluster from a template and values, as `clusterctl generate cluster` prints them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from remuda.clusterctl import substitution

Json = dict[str, Any]

CLUSTER_NAME, NAMESPACE, KUBERNETES_VERSION = "CLUSTER_NAME", "NAMESPACE", "KUBERNETES_VERSION"
SERVERS, WORKERS = "CONTROL_PLANE_MACHINE_COUNT", "WORKER_MACHINE_COUNT"
DEFAULTS: Mapping[str, str] = {SERVERS: "1", WORKERS: "0"}  # without a flag or an environment variable

_NAMESPACE_KIND = "Namespace"
# No server is asked, so the cluster-wide kinds must be known here.
_CLUSTER_WIDE = frozenset(
    f"{_NAMESPACE_KIND} Node NodeDriver PersistentVolume StorageClass PriorityClass RuntimeClass IngressClass "
    "APIService ClusterRole ClusterRoleBinding CustomResourceDefinition MutatingWebhookConfiguration "
    "ValidatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding "
    "CertificateSigningRequest ClusterIssuer CSIDriver CSINode".split()
)
_CLUSTER_WIDE_GROUP = "management.cattle.io/"


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    required: bool
    default: str = ""
    value: str = ""  # the given value


def variables(text: str, values: Mapping[str, str]) -> list[Variable]:
    """Return the variables of a template, required ones first. Raises BadTemplate."""
    found = [
        Variable(name=name, required=default is None, default=_unquoted(default or ""), value=values.get(name, ""))
        for name, default in substitution.variables(text).items()
    ]
    return sorted(found, key=lambda one: (not one.required, one.name))


def in_namespace(objects: Iterable[Json], namespace: str) -> list[Json]:
    """Return the objects with the given namespace, whatever the template says; a Namespace gets that name."""
    return [_placed(obj, namespace) for obj in objects]


def _placed(obj: Json, namespace: str) -> Json:
    if obj["kind"] == _NAMESPACE_KIND:
        return {**obj, "metadata": {**obj["metadata"], "name": namespace}}
    if obj["kind"] in _CLUSTER_WIDE or str(obj["apiVersion"]).startswith(_CLUSTER_WIDE_GROUP):
        return obj
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
