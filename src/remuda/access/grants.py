"""ClusterRoleTemplateBinding: a grant, written on the management plane and into the cluster, and revoked from both.

    validate → set finalizer and owner (the User, with whom the grant is deleted) → management plane → cluster → Ready

Revoking begins on the management plane, which cuts access at once, whether or not the cluster is reachable. An
unreachable cluster gets its role binding when it connects again. In a deleted cluster nothing needs to be removed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from remuda.access import AccessError, bindings
from remuda.access.admission import grant_complaints
from remuda.access.clusters import Clusters
from remuda.access.types import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    GRANT,
    MANAGEMENT_CLUSTER,
    READY,
    USER,
    ClusterRoleTemplateBinding,
    User,
    belongs_to,
    owned_by,
    role_of,
)
from remuda.kube import conditions
from remuda.kube.conditions import condition
from remuda.kube.core import NAMESPACES
from remuda.kube.errors import AlreadyExists, Conflict, NotFound, StatusError
from remuda.kube.objects import Condition, Key, ObjectMeta, OwnerReference
from remuda.providers.controlplane.identity import cluster_of, id_of
from remuda.providers.shared import names
from remuda.providers.shared.types.controlplane import RKEControlPlane
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue
from remuda.runtime.remote import RemoteClusters
from remuda.runtime.steps import step

NAME = "clusterroletemplatebinding"
CREATORS = "clustercreator"
FINALIZER = "remuda.dev/grant"
CREATOR_GRANT = "creator-cluster-owner"
CREATOR_GRANTED = "remuda.dev/creator-granted"  # annotation of a management Cluster: do not grant again after a revoke

PREPARE = step("grant.prepare", "writes the finalizer and the owner of a grant")
REACH = step("grant.reach", "grants access to a cluster on the management plane")
BIND = step("grant.bind", "creates the role binding of a grant in the cluster")
UNREACH = step("grant.unreach", "revokes access to a cluster on the management plane")
UNBIND = step("grant.unbind", "deletes the role binding of a grant in the cluster")
PUBLISH = step("grant.publish", "writes the status of a grant")
RELEASE = step("grant.release", "removes the finalizer of a grant that is revoked everywhere")
GRANT_CREATOR = step("grant.create-for-creator", "grants the creator of a cluster the owner role")
NOTE_CREATOR = step("grant.note-creator", "records that the creator of a cluster has the owner role")

_BY_CLUSTER, _BY_USER = "cluster id", "user"
_NAMESPACE_SECONDS = 1.0


class _Waits(AccessError):
    """Reason why a grant is not Ready, with the condition that reports it."""

    def __init__(self, reason: str, on: str, message: str, check_after: float | None = None) -> None:
        super().__init__(message)
        self.ready = condition(READY, False, reason, message)
        self.outcome = Blocked(reason, on, message, check_after)


class GrantController:
    def __init__(self, manager: Manager, remote: RemoteClusters, clusters: Clusters) -> None:
        self._client = manager.client
        self._remote = remote
        self._clusters = clusters
        self._grants = manager.caches.of(GRANT)
        self._grants.index(_BY_CLUSTER, lambda grant: (grant.cluster_name,))
        self._grants.index(_BY_USER, lambda grant: (grant.user_name,))
        self._users = manager.caches.of(USER)
        controller = manager.controller(NAME, GRANT, self.reconcile)
        controller.watch(clusters.planes, lambda plane: self._grants.keys(_BY_CLUSTER, id_of(plane)), facts=_life)
        controller.watch(self._users, lambda user: self._grants.keys(_BY_USER, user.metadata.name), facts=_uid)
        self._controller = controller
        remote.on_change(lambda cluster, node: self._reached(cluster) if node is None else None)

    def _reached(self, cluster: Key) -> None:
        id = self._clusters.id(cluster)
        for key in self._grants.keys(_BY_CLUSTER, id) if id else ():
            self._controller.enqueue(key)

    async def reconcile(self, key: Key) -> Outcome:
        value = self._grants.raw(*key)
        if value is None:
            return DONE
        grant = GRANT.decode(value)
        try:
            if grant.metadata.deleting:
                return await self._take_back(value, grant)
            value = await self._give(value, grant)
            ready = condition(READY, True, "Granted", f"{_who(grant)} is {role_of(grant)} in {grant.cluster_name}")
            outcome: Outcome = DONE
        except _Waits as waits:
            ready, outcome = waits.ready, waits.outcome
            # `_give` may have saved a newer version before it stopped.
            value = self._grants.raw(*key) or value
        except Conflict:
            raise
        except StatusError as error:
            failed = condition(READY, False, "Failed", f"{error}; retrying")
            await self._publish(self._grants.raw(*key) or value, grant, failed)
            raise
        await self._publish(value, grant, ready)
        return outcome

    async def _publish(self, value: bytes, grant: ClusterRoleTemplateBinding, ready: Condition) -> None:
        draft = Draft(GRANT.target, value)
        if role_of(grant):
            draft.status["downstreamRole"] = role_of(grant)
        conditions.put(draft.status, [ready], generation=grant.metadata.generation)
        await save(self._client, draft, PUBLISH)

    # -- granting

    async def _give(self, value: bytes, grant: ClusterRoleTemplateBinding) -> bytes:
        owner = self._owner(grant)
        draft = Draft(GRANT.target, value)
        draft.add_finalizer(FINALIZER)
        if owner is not None:
            draft.set_owner(owner)
        # Write the finalizer before the first binding: a grant that is deleted in between would leave bindings behind.
        value = await save(self._client, draft, PREPARE)
        id = grant.cluster_name
        space = await bindings.find(self._client, NAMESPACES, id)
        if space is None:
            raise _Waits("Gone", f"Namespace {id}", "the namespace of the cluster does not exist")
        owned = OwnerReference(api_version="v1", kind="Namespace", name=id, uid=space["metadata"]["uid"])
        await bindings.ensure(self._client, CLUSTER_ROLES, bindings.role(id, owned), REACH)
        await bindings.ensure(self._client, CLUSTER_ROLE_BINDINGS, bindings.binding(grant), REACH)
        await self._bind(grant)
        return value

    def _owner(self, grant: ClusterRoleTemplateBinding) -> OwnerReference | None:
        """Return the owner: the User, or None for a group. Raises _Waits if the grant cannot be given."""
        on = f"{GRANT.name} {grant.key}"
        if wrong := grant_complaints(grant, grant.metadata.namespace):
            raise _Waits("Invalid", on, "; ".join(map(str, wrong)))
        if not grant.user_name:
            return None
        user = self._users.get("", grant.user_name)
        if user is None:
            raise _Waits("UserMissing", f"User {grant.user_name}", f"user {grant.user_name} does not exist")
        if not belongs_to(grant.metadata, user.metadata):
            raise _Waits(
                "UserMissing",
                f"User {grant.user_name}",
                "it belongs to a deleted user of this name; create a new grant",
            )
        return owned_by(user.metadata)

    async def _bind(self, grant: ClusterRoleTemplateBinding) -> None:
        plane = self._clusters.plane(grant.cluster_name)
        if plane is None:
            on = f"cluster {grant.cluster_name}"
            raise _Waits("ClusterMissing", on, f"cluster {grant.cluster_name} does not exist")
        cluster = cluster_of(plane)
        found = self._remote.look(cluster)
        if found.client is None:
            if conditions.is_true(grant.status.conditions, READY):
                return  # the binding exists already, and a grant never changes
            why = f"cannot reach Cluster {cluster} ({found.error}); the role is granted there when it connects"
            raise _Waits("ClusterUnreachable", f"Cluster {cluster}", why)
        await bindings.ensure(found.client, CLUSTER_ROLE_BINDINGS, bindings.downstream(grant), BIND)

    # -- revoking

    async def _take_back(self, value: bytes, grant: ClusterRoleTemplateBinding) -> Outcome:
        if FINALIZER not in grant.metadata.finalizers:
            return DONE
        # Cut access on the management plane first: this works although the cluster may be unreachable.
        await bindings.remove(self._client, CLUSTER_ROLE_BINDINGS, bindings.binding_name(grant), UNREACH)
        await self._unbind(grant)
        draft = Draft(GRANT.target, value)
        draft.remove_finalizer(FINALIZER)
        await save(self._client, draft, RELEASE)
        return DONE

    async def _unbind(self, grant: ClusterRoleTemplateBinding) -> None:
        plane = self._clusters.plane(grant.cluster_name)
        if plane is None or plane.metadata.deleting:
            return
        cluster = cluster_of(plane)
        found = self._remote.look(cluster)
        if found.client is None:
            why = (
                f"{_who(grant)} can no longer reach the cluster; its role binding there is deleted when the "
                f"cluster connects ({found.error})"
            )
            raise _Waits("Revoking", f"Cluster {cluster}", why)
        await bindings.remove(found.client, CLUSTER_ROLE_BINDINGS, bindings.downstream_name(grant), UNBIND)


class CreatorController:
    """Controller that makes the creator of a cluster its owner, if the creator is one of our Users.

    Other creators have their permissions from elsewhere and get no grant.
    """

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._clusters = manager.caches.of(MANAGEMENT_CLUSTER)
        self._users = manager.caches.of(USER)
        manager.controller(CREATORS, MANAGEMENT_CLUSTER, self.reconcile)

    async def reconcile(self, key: Key) -> Outcome:
        value = self._clusters.raw(*key)
        if value is None:
            return DONE
        metadata = MANAGEMENT_CLUSTER.decode(value).metadata
        user = self._users.get("", metadata.annotations.get(names.CREATOR, ""))
        if metadata.deleting or user is None or user.metadata.deleting or CREATOR_GRANTED in metadata.annotations:
            return DONE
        obj = manifest(CREATOR_GRANT, key.name, user.metadata, "cluster-owner")
        try:
            async with GRANT_CREATOR:
                await self._client.create(GRANT.target, key.name, obj)
        except NotFound:
            return Requeue(_NAMESPACE_SECONDS, f"namespace {key.name} does not exist yet")
        except AlreadyExists:
            pass  # an earlier run created it and was stopped before it wrote the annotation
        # Write the annotation after the grant: in the other order, a crash would leave the creator without one.
        draft = Draft(MANAGEMENT_CLUSTER.target, value)
        draft.set_annotation(CREATOR_GRANTED, user.metadata.name)
        await save(self._client, draft, NOTE_CREATOR)
        return DONE


def manifest(name: str, cluster: str, user: ObjectMeta, role: str) -> dict[str, Any]:
    """Return the manifest of a grant for a User."""
    return {
        "apiVersion": GRANT.api_version,
        "kind": GRANT.name,
        "metadata": {"name": name, "ownerReferences": [msgspec.to_builtins(owned_by(user))]},
        "clusterName": cluster,
        "userName": user.name,
        "roleTemplateName": role,
    }


def _who(grant: ClusterRoleTemplateBinding) -> str:
    return f"user {grant.user_name}" if grant.user_name else f"group {grant.group_name}"


def _life(plane: RKEControlPlane) -> object:
    """Return the facts of a control plane that concern grants."""
    return plane.metadata.uid, plane.metadata.deleting, plane.spec.management_cluster_name


def _uid(user: User) -> object:
    return user.metadata.uid
