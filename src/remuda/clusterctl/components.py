"""Components that `clusterctl init` installs: CRDs, RBAC and the one program of our three providers. Pure.

The bootstrap, control plane and infrastructure providers are one program. Its Deployment is a component of the
bootstrap provider, which both of the others need; those two contribute their CRDs. The RBAC rules are those of
rbac.yaml; tests check them against the requests that the program sends. In such a management cluster the core of
Cluster API is upstream's, so the program runs without ours.
"""

from __future__ import annotations

from remuda.capi import names as capi_names
from remuda.capi.inventory import ProviderType
from remuda.clusterctl import program
from remuda.clusterctl.program import MANAGER, NAMESPACE, Json, named, rights
from remuda.providers import setup as providers
from remuda.providers.shared import names

__all__ = ["NAMESPACE", "components", "definitions", "rights"]

SERVER_URL, JOB_IMAGE = "REMUDA_SERVER_URL", "REMUDA_JOB_IMAGE"  # variables

_GRANTED = ("remuda-manager-core", "remuda-manager-providers")  # of rbac.yaml
_RBAC = "rbac.authorization.k8s.io"
_EVERY_VERB = ["get", "list", "watch", "create", "update", "patch", "delete"]


def components(type: ProviderType, version: str) -> str:
    """Return the text of <type>-components.yaml. `version`: version of the program, such as "v0.1.0"."""
    objects = [named("v1", "Namespace", NAMESPACE, namespace=""), *definitions(type)]
    if type == "BootstrapProvider":
        objects += [*_rights(), *program.services(), _deployment(version)]
    return program.text(objects)


def definitions(type: ProviderType) -> list[Json]:
    """Return the CRDs labelled with that provider; those without a label are the infrastructure provider's."""
    own = {one.type: one.label for one in providers.entries("")}
    found = [(one, one["metadata"]["labels"].get(capi_names.PROVIDER)) for one in providers.definitions()]
    return [one for one, label in found if (label or own["InfrastructureProvider"]) == own[type]]


def _rights() -> list[Json]:
    """Return the RBAC objects, with all rules in one role: the aggregated role on such a cluster is upstream's."""
    known = rights()
    rules = [rule for name in _GRANTED for rule in known["ClusterRole", name]["rules"]]
    core = {"apiGroups": [names.GROUP, names.MACHINE_GROUP], "resources": ["*"], "verbs": _EVERY_VERB}
    shown = {**named(f"{_RBAC}/v1", "ClusterRole", f"{MANAGER}-kinds", namespace=""), "rules": [core]}
    shown["metadata"]["labels"] = {capi_names.AGGREGATE_TO_MANAGER: "true"}
    role = {**named(f"{_RBAC}/v1", "ClusterRole", MANAGER, namespace=""), "rules": rules}
    kept = [known[kind, MANAGER] for kind in ("ServiceAccount", "ClusterRoleBinding", "Role", "RoleBinding")]
    return [*kept, role, shown]


def _deployment(version: str) -> Json:
    image = f"localhost/remuda:{version}"  # users set the registry with clusterctl's setting `images`
    arguments = program.arguments("providers", f"${{{SERVER_URL}}}", f"${{{JOB_IMAGE}:={image}}}")
    return program.deployment(image, arguments)
