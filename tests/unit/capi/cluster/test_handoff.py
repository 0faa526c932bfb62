"""What a Cluster waits for, in the words `why` will show. Nothing here writes: the objects are adopted already."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from remuda.capi import names
from remuda.capi.cluster.handoff import take_control_plane, take_infrastructure
from remuda.capi.cluster.scope import ClusterMembers, ClusterScope, ProviderLookup
from remuda.capi.types import Machine
from remuda.kube.client import Client
from remuda.runtime.outcome import DONE, Blocked, Outcome, Retryable
from remuda.runtime.remote import Connection
from tests.unit.capi.cluster.facts import CONTROL_PLANE, INFRASTRUCTURE, JUST_NOW, found, machine

NO_CLIENT = cast(Client, None)
NOTHING = ProviderLookup()
OWNED = {
    "name": "c",
    "namespace": "ns",
    "labels": {names.CLUSTER_NAME: "c"},
    "ownerReferences": [{"apiVersion": names.API_VERSION, "kind": "Cluster", "name": "c", "uid": "u"}],
}


def scope(
    infrastructure: ProviderLookup = NOTHING, control_plane: ProviderLookup = NOTHING, **parts: Any
) -> ClusterScope:
    machines: list[Machine] = parts.pop("machines", [])
    raw = {"metadata": {"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": "1"}, "spec": {}, **parts}
    return ClusterScope(
        msgspec.json.encode(raw), infrastructure, control_plane, ClusterMembers(machines=machines), Connection()
    )


def blocked(outcome: Outcome) -> tuple[str, str, str]:
    assert isinstance(outcome, Blocked)
    return outcome.reason, outcome.on, outcome.message


async def test_missing_infrastructure_blocks_with_object_does_not_exist() -> None:
    seen = scope(ProviderLookup(INFRASTRUCTURE))
    assert blocked(await take_infrastructure(NO_CLIENT, seen)) == (
        "ObjectDoesNotExist",
        "DevCluster c",
        "does not exist yet",
    )
    assert not seen.provisioned


async def test_deleted_infrastructure_blocks_with_object_deleted() -> None:
    seen = scope(ProviderLookup(INFRASTRUCTURE), status={"initialization": {"infrastructureProvisioned": True}})
    assert blocked(await take_infrastructure(NO_CLIENT, seen))[0] == "ObjectDeleted"


async def test_unreadable_infrastructure_raises_its_error() -> None:
    with pytest.raises(Retryable, match="no definition"):
        await take_infrastructure(NO_CLIENT, scope(ProviderLookup(INFRASTRUCTURE, error=Retryable("no definition"))))


@pytest.mark.parametrize(
    ("contract", "path"), [("v1beta2", "status.initialization.provisioned"), ("v1beta1", "status.ready")]
)
async def test_unready_infrastructure_blocks_and_names_contract_field(contract: str, path: str) -> None:
    seen = scope(found(INFRASTRUCTURE, contract, metadata=OWNED))
    outcome = blocked(await take_infrastructure(NO_CLIENT, seen))
    assert outcome == ("WaitingForInfrastructure", "DevCluster c", f"its provider has not set {path} to true yet")


async def test_deleting_infrastructure_provides_no_endpoint() -> None:
    metadata = {"name": "c", "namespace": "ns", "deletionTimestamp": JUST_NOW}
    endpoint = {"controlPlaneEndpoint": {"host": "h", "port": 1}}
    status = {"initialization": {"provisioned": True}}
    seen = scope(found(INFRASTRUCTURE, metadata=metadata, spec=endpoint, status=status))
    assert blocked(await take_infrastructure(NO_CLIENT, seen))[0] == "InfrastructureDeleting"
    assert not seen.endpoint_known
    assert not seen.provisioned


async def test_provisioned_infrastructure_is_copied_to_cluster() -> None:
    spec = {"controlPlaneEndpoint": {"host": "h", "port": 1}}
    status = {"initialization": {"provisioned": True}, "failureDomains": [{"name": "a"}], "failureReason": "Old"}
    seen = scope(found(INFRASTRUCTURE, metadata=OWNED, spec=spec, status=status))
    assert await take_infrastructure(NO_CLIENT, seen) == DONE
    patch, status_patch = seen.draft.patches()
    assert patch == {"spec": {"controlPlaneEndpoint": {"host": "h", "port": 1}}}
    assert status_patch["status"] == {
        "initialization": {"infrastructureProvisioned": True},
        "failureDomains": [{"name": "a"}],
        "deprecated": {"v1beta1": {"failureReason": "Old"}},
    }


async def test_infrastructure_is_optional_unless_cluster_has_topology() -> None:
    seen = scope()
    assert await take_infrastructure(NO_CLIENT, seen) == DONE
    assert seen.provisioned
    seen = scope(spec={"topology": {"version": "v1.35.0"}})
    await take_infrastructure(NO_CLIENT, seen)
    assert not seen.provisioned


async def test_uninitialized_control_plane_endpoint_is_not_used() -> None:
    spec = {"controlPlaneEndpoint": {"host": "h", "port": 1}}
    seen = scope(control_plane=found(CONTROL_PLANE, metadata=OWNED, spec=spec))
    reason, on, message = blocked(await take_control_plane(NO_CLIENT, seen))
    assert (reason, on) == ("WaitingForControlPlane", "DevControlPlane c")
    assert message == "its provider has not set status.initialization.controlPlaneInitialized to true yet"
    assert not seen.endpoint_known


async def test_existing_cluster_endpoint_is_not_overwritten() -> None:
    spec = {"controlPlaneEndpoint": {"host": "other", "port": 2}}
    look = found(CONTROL_PLANE, metadata=OWNED, spec=spec, status={"initialization": {"controlPlaneInitialized": True}})
    seen = scope(control_plane=look, spec={"controlPlaneEndpoint": {"host": "first", "port": 1}})
    assert await take_control_plane(NO_CLIENT, seen) == DONE
    assert seen.draft.patches()[0] == {}
    assert seen.initialized


async def test_control_plane_without_provider_is_initialized_by_first_node() -> None:
    worker = machine("w", node="n1")
    seen = scope(machines=[worker, machine("cp", control_plane=True)])
    assert blocked(await take_control_plane(NO_CLIENT, seen))[0] == "WaitingForControlPlane"
    seen = scope(machines=[worker, machine("cp", control_plane=True, node="n2")])
    assert await take_control_plane(NO_CLIENT, seen) == DONE
    again = scope(machines=[], status={"initialization": {"controlPlaneInitialized": True}})
    assert await take_control_plane(NO_CLIENT, again) == DONE
