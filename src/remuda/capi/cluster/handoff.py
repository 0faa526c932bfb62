"""Exchange of data between a Cluster and its infrastructure and control plane objects.

Both objects get the Cluster as owner and its name as a label, which their providers wait for. Once they report that
they are provisioned, the controller sets flags that it never resets. It copies the endpoint from the first object that
has one, and only while the Cluster has none. Failure domains follow the infrastructure as long as it exists.
"""

from __future__ import annotations

from remuda.capi import contract, names
from remuda.capi.cluster.scope import ClusterScope, ProviderLookup
from remuda.capi.contract import ProviderObject
from remuda.kube.client import Client
from remuda.runtime.draft import save
from remuda.runtime.outcome import DONE, Blocked, Outcome
from remuda.runtime.steps import Step, step

ADOPT_INFRASTRUCTURE = step(
    "cluster.adopt-infrastructure", "makes the Cluster an owner of its infrastructure object and labels it"
)
ADOPT_CONTROL_PLANE = step(
    "cluster.adopt-control-plane", "makes the Cluster an owner of its control plane object and labels it"
)


async def take_infrastructure(client: Client, scope: ClusterScope) -> Outcome:
    found = scope.infrastructure
    if found.ref is None:
        # A topology would set the reference later. Without one, there is nothing to wait for.
        if scope.cluster.spec.topology is None:
            scope.mark("infrastructureProvisioned")
        return DONE
    if found.obj is None:
        return _missing(scope, found, was_there=scope.provisioned)
    await _adopt(client, scope, found.obj, ADOPT_INFRASTRUCTURE)
    _copy_failure(scope, found.obj)
    if found.obj.deleting:
        return _waiting(found, "InfrastructureDeleting", "is being deleted while the Cluster still exists")
    # Once set, the flag stays: a provider that reports false later does not stop the copying below.
    if not contract.provisioned(found.obj) and not scope.provisioned:
        path = ".".join(contract.provisioned_path(found.obj))
        return _waiting(found, "WaitingForInfrastructure", f"its provider has not set {path} to true yet")
    _copy_endpoint(scope, found.obj)
    _copy_failure_domains(scope, found.obj)
    if not scope.provisioned:
        scope.mark("infrastructureProvisioned")
    return DONE


async def take_control_plane(client: Client, scope: ClusterScope) -> Outcome:
    found = scope.control_plane
    if found.ref is None:
        return _first_control_plane_machine(scope)
    if found.obj is None:
        return _missing(scope, found, was_there=scope.initialized)
    await _adopt(client, scope, found.obj, ADOPT_CONTROL_PLANE)
    _copy_failure(scope, found.obj)
    contract.counts(found.obj)  # raises ContractError here, where it is reported, if a count is not a number
    if found.obj.deleting:
        return _waiting(found, "ControlPlaneDeleting", "is being deleted while the Cluster still exists")
    if not contract.initialized(found.obj) and not scope.initialized:
        path = ".".join(contract.initialized_path(found.obj))
        return _waiting(found, "WaitingForControlPlane", f"its provider has not set {path} to true yet")
    _copy_endpoint(scope, found.obj)
    if not scope.initialized:
        scope.mark("controlPlaneInitialized")
    return DONE


def _first_control_plane_machine(scope: ClusterScope) -> Outcome:
    """Mark the control plane as initialized when one of its Machines has a Node; for Clusters without a provider."""
    if scope.initialized:
        return DONE
    first = next((one for one in scope.members.control_plane if one.status.node_ref is not None), None)
    if first is None:
        on = f"control plane Machines of {scope.key}"
        return Blocked("WaitingForControlPlane", on, "none of them has a Node yet")
    scope.mark("controlPlaneInitialized")
    return DONE


def _missing(scope: ClusterScope, found: ProviderLookup, *, was_there: bool) -> Outcome:
    if found.error is not None:
        raise found.error
    if was_there:
        return _waiting(found, "ObjectDeleted", "has been deleted while the Cluster still exists")
    return _waiting(found, "ObjectDoesNotExist", "does not exist yet")


def _waiting(found: ProviderLookup, reason: str, message: str) -> Outcome:
    return Blocked(reason, str(found), message)


async def _adopt(client: Client, scope: ClusterScope, obj: ProviderObject, named: Step) -> None:
    """Set owner reference and label of a provider's object. Writes nothing if both are right already."""
    owner = scope.owner
    owned = any(one.uid == owner.uid and one.api_version == owner.api_version for one in obj.metadata.owner_references)
    if (owned and obj.metadata.labels.get(names.CLUSTER_NAME) == owner.name) or obj.deleting:
        return
    draft = obj.draft()
    if not owned:
        draft.set_owner(owner)
    draft.set_label(names.CLUSTER_NAME, owner.name)
    await save(client, draft, named)


def _copy_endpoint(scope: ClusterScope, obj: ProviderObject) -> None:
    endpoint = contract.endpoint(obj)
    if endpoint.valid and not scope.endpoint_known:
        scope.draft.spec["controlPlaneEndpoint"] = {"host": endpoint.host, "port": endpoint.port}


def _copy_failure_domains(scope: ClusterScope, obj: ProviderObject) -> None:
    domains = contract.failure_domains(obj)
    if domains:
        scope.draft.status["failureDomains"] = domains
    else:
        scope.draft.status.pop("failureDomains", None)


def _copy_failure(scope: ClusterScope, obj: ProviderObject) -> None:
    """Copy the failure for readers of the v1beta1 API; no controller acts on it."""
    reason, message = contract.failure(obj)
    if not reason and not message:
        return
    old = scope.draft.status.setdefault("deprecated", {}).setdefault("v1beta1", {})
    if reason:
        old["failureReason"] = reason
    if message:
        old["failureMessage"] = f"{obj}: {message}"
