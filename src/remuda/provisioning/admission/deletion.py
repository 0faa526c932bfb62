"""Deletion of the objects that belong to a declared Cluster: refused while the Cluster exists and is not being deleted.

The controller would create such an object again at once, but the machines below it, and etcd on them, would be lost.
The refusal names the command that does what the user wants.

These deletions pass: those of the manager, of garbage collection and of the namespace controller; those in a namespace
or below a Cluster of Cluster API that is being deleted; those by `clusterctl move`, which has copied the object; those
of pools that are no longer declared, and of templates that nothing uses. So a manager can do its work even where nobody
knows it by its user.
"""

from __future__ import annotations

from typing import Any

from remuda.capi import names as capi_names
from remuda.capi.admission.rules import read
from remuda.capi.types import CLUSTER as CAPI_CLUSTER
from remuda.capi.types import MACHINE_DEPLOYMENT, MACHINE_SET
from remuda.kube.admission import ALLOWED, EVERY_KIND, AdmissionRegistration, AdmissionResult, Operation, Review, Unseen
from remuda.kube.client import Target
from remuda.kube.core import NAMESPACES
from remuda.kube.objects import value_at
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP_TEMPLATE
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.provisioning.admission.policy import pools_of
from remuda.provisioning.apply import APPLIED
from remuda.provisioning.pools import POOL_NAME, deployment_name
from remuda.provisioning.types import CLUSTER
from remuda.runtime.webhooks import Webhook

Json = dict[str, Any]

DELETE_FOR_MOVE = "clusterctl.cluster.x-k8s.io/delete-for-move"  # annotation by `clusterctl move`, before it deletes
# Users that delete what has lost its owner or its namespace: of kube-controller-manager, with one account for each of
# its controllers or with one for all; and of the embedded engine.
COLLECTORS = (
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:apiserver",
)

_DELETE: tuple[Operation, ...] = ("DELETE",)
_TEMPLATE = "Template"  # how the kinds of templates end; their group has <Driver>Machines as well
_REFERENCES = (("infrastructureRef",), ("bootstrap", "configRef"))  # to templates, in the spec of a Machine
_GUARDED = (
    (CAPI_CLUSTER.name, CAPI_CLUSTER.target),
    (MACHINE_DEPLOYMENT.name, MACHINE_DEPLOYMENT.target),
    (RKE_CONTROL_PLANE.name, RKE_CONTROL_PLANE.target),
    (RKE_CLUSTER.name, RKE_CLUSTER.target),
    (RKE_BOOTSTRAP_TEMPLATE.name, RKE_BOOTSTRAP_TEMPLATE.target),
    ("MachineTemplate", Target(names.MACHINE_API_VERSION, EVERY_KIND)),
)
# The exemptions that the API server can judge itself, so that it calls no webhook for them: a manager that does not run
# must not keep a namespace, or a move to another management cluster, from being finished.
_ONLY = " && ".join(
    (
        f"!(request.userInfo.username in [{', '.join(map(repr, COLLECTORS))}])",
        "!has(oldObject.metadata.deletionTimestamp)",
        "has(oldObject.metadata.annotations)",
        f"'{APPLIED}' in oldObject.metadata.annotations",
        f"!('{DELETE_FOR_MOVE}' in oldObject.metadata.annotations)",
    )
)


def admit(review: Review) -> AdmissionResult:
    old = review.old
    if old is None or review.by_manager or review.user in COLLECTORS or _is_exempt(old):
        return ALLOWED
    try:
        owner = _owner(review, old)
    except Unseen:  # of a namespace that this manager does not look after
        return ALLOWED
    return ALLOWED if owner is None else AdmissionResult(denied=f"{_reason(owner)} {_advice(review, old, owner)}")


def registrations() -> list[AdmissionRegistration]:
    return [AdmissionRegistration(target.group, target.plural, admit, _DELETE) for _, target in _GUARDED]


def webhooks() -> list[Webhook]:
    """Return the webhooks that do the same on an API server elsewhere."""
    return [
        Webhook(
            kind=f"{kind}-deletion",
            target=target,
            function=admit,
            operations=_DELETE,
            only=_ONLY,
            except_manager=True,
        )
        for kind, target in _GUARDED
    ]


def _is_exempt(old: Json) -> bool:
    """Return whether the object itself shows that nothing is lost: it is being deleted, not made by us, or moved."""
    notes = value_at(old, "metadata", "annotations") or {}
    return bool(value_at(old, "metadata", "deletionTimestamp")) or APPLIED not in notes or DELETE_FOR_MOVE in notes


def _owner(review: Review, old: Json) -> Json | None:
    """Return the declared Cluster that would create the object again; None if there is none. Raises Unseen."""
    name = _cluster_name(old)
    if not name or _is_ending(_namespace(review)):
        return None
    cluster = review.lookup(CLUSTER.api_version, CLUSTER.plural, review.namespace, name)
    if cluster is None or _is_ending(cluster):
        return None
    if (review.group, review.resource) != (CAPI_CLUSTER.group, CAPI_CLUSTER.plural):
        # Once it is being deleted, so is everything below it: by the core, which may be another program.
        above = review.lookup(CAPI_CLUSTER.api_version, CAPI_CLUSTER.plural, review.namespace, name)
        if above is None or _is_ending(above):
            return None
    return cluster if _is_wanted(review, cluster, name) else None


def _is_wanted(review: Review, cluster: Json, name: str) -> bool:
    """Return whether the object is declared, or in use. Raises Unseen."""
    if review.resource == MACHINE_DEPLOYMENT.plural:
        declared = read(CLUSTER, cluster)
        return declared is None or review.name in {deployment_name(name, pool.name) for pool in pools_of(declared)}
    if not review.kind.endswith(_TEMPLATE):
        return True
    labels = {capi_names.CLUSTER_NAME: capi_names.label_value(name)}
    return any(
        value_at(obj, "spec", "template", "spec", *path, "kind") == review.kind
        and value_at(obj, "spec", "template", "spec", *path, "name") == review.name
        for kind in (MACHINE_DEPLOYMENT, MACHINE_SET)
        for obj in review.select(kind.api_version, kind.plural, review.namespace, labels)
        for path in _REFERENCES
    )


def _cluster_name(old: Json) -> str:
    """Both Clusters have the same name; each of our objects is owned by one of the two."""
    groups = {CLUSTER.group, CAPI_CLUSTER.group}
    for owner in value_at(old, "metadata", "ownerReferences") or ():
        if owner.get("kind") == CLUSTER.name and str(owner.get("apiVersion")).partition("/")[0] in groups:
            return str(owner.get("name"))
    return ""


def _namespace(review: Review) -> Json | None:
    try:
        return review.lookup(NAMESPACES.api_version, NAMESPACES.plural, "", review.namespace)
    except Unseen:  # the namespace controller is known by its user, too
        return None


def _is_ending(obj: Json | None) -> bool:
    return bool(value_at(obj, "metadata", "deletionTimestamp"))


def _reason(owner: Json) -> str:
    metadata = owner["metadata"]
    return (
        f"it belongs to the declared Cluster {metadata['namespace']}/{metadata['name']}, which would create it again."
    )


def _advice(review: Review, old: Json, owner: Json) -> str:
    name, place = owner["metadata"]["name"], f"-n {owner['metadata']['namespace']}"
    edit = f"remuda edit {name} {place}"
    if review.resource == CAPI_CLUSTER.plural:
        return f"To delete the cluster with its machines: remuda delete cluster {name} {place}"
    if review.resource == MACHINE_DEPLOYMENT.plural:
        pool = value_at(old, "spec", "template", "metadata", "labels", POOL_NAME) or "POOL"
        return (
            f"To change the number of its machines: remuda scale {name} {place} --pool {pool}=N. To remove the pool, "
            f"remove it from spec.rkeConfig.machinePools: {edit}"
        )
    if review.kind.endswith(_TEMPLATE):
        return f"Remuda deletes templates that are no longer used. To change the machines of a pool: {edit}"
    return f"To change it: {edit}. To delete the cluster with its machines: remuda delete cluster {name} {place}"
