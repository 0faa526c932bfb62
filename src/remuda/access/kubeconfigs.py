"""Controller of the Secret `<cluster>-kubeconfig`, which leads through our proxy. Cluster API, clusterctl and users'
controllers reach a cluster with it.

    system User of the cluster → its grant (cluster-owner) → its Token, limited to this cluster → the Secret

Annotations record what the Secret was built from; it is rewritten when the server's URL, its CA or the token changes.
The token's secret is stored only in this Secret: if it is lost, or does not match the Token's hash, the controller
creates a new token. It waits for `<cluster>-kubeconfig-admin`, because the proxy cannot reach the cluster before. A
kubeconfig Secret that somebody else has created is left alone.
"""

from __future__ import annotations

import contextlib

import yaml

from remuda.access import grants, tokens
from remuda.access.clusters import Clusters
from remuda.access.interfaces import PREFIX
from remuda.access.system_users import CLUSTER, index_by_user, principal, system_user
from remuda.access.types import (
    GRANT,
    SYSTEM,
    TOKEN,
    TOKEN_KIND,
    USER,
    ClusterRoleTemplateBinding,
    Token,
    User,
)
from remuda.capi import names as capi_names
from remuda.capi.remote import cluster_secrets, secret_data
from remuda.kube import kubeconfig as files
from remuda.kube.core import NAMESPACES, SECRETS
from remuda.kube.errors import AlreadyExists, Conflict, NotFound, StatusError
from remuda.kube.objects import Key, Object
from remuda.providers.controlplane.identity import cluster_of, id_of
from remuda.providers.controlplane.kubeconfig import AUTHORITY, SERVER, is_ours
from remuda.providers.shared import names
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.secrets import create_owned, owned_secret
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable
from remuda.runtime.steps import step

NAME = "clusterkubeconfig"

TOKEN_NOTE = "remuda.dev/token"  # noqa: S105 - annotation of the Secret: the hash of the token in it
TOKEN_KEY = "token"  # noqa: S105 - of the Secret

MAKE_USER = step("clusterkubeconfig.create-user", "creates the system user of a cluster")
MAKE_NAMESPACE = step(
    "clusterkubeconfig.create-namespace", "creates the namespace of a cluster without a provisioning Cluster"
)
MAKE_GRANT = step("clusterkubeconfig.create-grant", "grants the system user of a cluster the owner role")
MAKE_TOKEN = step("clusterkubeconfig.create-token", "creates the token of a cluster's system user")
DROP_TOKEN = step("clusterkubeconfig.delete-token", "deletes a system user's token whose secret is lost")
CREATE = step("clusterkubeconfig.create", "creates the kubeconfig that reaches a cluster through the proxy")
RENEW = step("clusterkubeconfig.renew", "rewrites the kubeconfig that uses the proxy")

_NAMESPACE_SECONDS = 1.0
_BY_LABEL = "label of its cluster"


class KubeconfigController:
    def __init__(self, manager: Manager, clusters: Clusters, site: Site) -> None:
        self._client = manager.client
        self._events = manager.events
        self._clusters = clusters
        self._site = site
        self._secrets = cluster_secrets(manager.caches)
        self._users = manager.caches.of(USER)
        self._tokens = manager.caches.of(TOKEN)
        self._grants = manager.caches.of(GRANT)
        self._planes = clusters.planes
        of_user = index_by_user(self._planes)
        self._planes.index(_BY_LABEL, _labelled)
        controller = manager.controller(NAME, RKE_CONTROL_PLANE, self.reconcile)
        controller.watch(self._secrets, self._of_secret)
        controller.watch(self._users, lambda user: of_user(user.metadata.name))
        controller.watch(self._tokens, lambda token: of_user(token.user_id))
        controller.watch(self._grants, lambda grant: of_user(grant.user_name), facts=_being)

    def _of_secret(self, secret: Object) -> list[Key]:
        label = secret.metadata.labels.get(capi_names.CLUSTER_NAME, "")
        return self._planes.keys(_BY_LABEL, f"{secret.metadata.namespace}/{label}")

    async def reconcile(self, key: Key) -> Outcome:
        plane = self._planes.get(*key)
        if plane is None or plane.metadata.deleting:
            return DONE
        try:
            return await self._keep(plane)
        except Conflict:
            raise
        except StatusError as error:
            self._events.warning(plane, "KubeconfigFailed", f"cannot write the kubeconfig of the cluster: {error}")
            raise

    async def _keep(self, plane: RKEControlPlane) -> Outcome:
        cluster, namespace = plane.spec.cluster_name, plane.metadata.namespace
        seen = self._secrets.get(namespace, capi_names.kubeconfig_secret(cluster))
        if seen is not None and not is_ours(seen.metadata, plane):
            return DONE
        own = names.admin_kubeconfig_secret(cluster)
        if self._secrets.get(namespace, own) is None:
            return Blocked("WaitingForCredentials", f"Secret {namespace}/{own}", "does not exist yet")
        id = self._clusters.id(cluster_of(plane))
        if not id:
            why = f"its cluster id {id_of(plane)!r} is invalid, or another cluster has it"
            self._events.warning(plane, "NoId", why)
            return Blocked("NoId", f"{RKE_CONTROL_PLANE.name} {plane.key}", why)
        user = self._users.get("", system_user(cluster_of(plane)))
        if user is None:
            user = USER.decode(await self._make_user(cluster_of(plane)))
        if user.metadata.deleting:
            return Requeue(_NAMESPACE_SECONDS, "the system user of an earlier cluster of this name is being deleted")
        if not await self._granted(plane, id, user):
            return Requeue(_NAMESPACE_SECONDS, f"namespace {id} does not exist yet")
        await self._put_secret(plane, id, user, seen)
        return DONE

    async def _make_user(self, cluster: Key) -> bytes:
        obj = {
            "apiVersion": USER.api_version,
            "kind": USER.name,
            "metadata": {"name": system_user(cluster), "annotations": {CLUSTER: str(cluster)}},
            "username": principal(cluster),
            "displayName": f"System user of cluster {cluster}",
            "enabled": True,
        }
        async with MAKE_USER:
            return await self._client.create(USER.target, "", obj)

    async def _granted(self, plane: RKEControlPlane, id: str, user: User) -> bool:
        """Create the grant of the system user; return False if its namespace does not exist yet."""
        name = names.join(id, plane.metadata.namespace, "owner")
        if self._grants.get(id, name) is not None:
            return True
        if not plane.spec.management_cluster_name:
            await self._make_namespace(id, cluster_of(plane))
        try:
            async with MAKE_GRANT:
                obj = grants.manifest(name, id, user.metadata, "cluster-owner")
                await self._client.create(GRANT.target, id, obj)
        except NotFound:
            # Provisioning creates the namespace of a declared cluster, which can take longer.
            return False
        except AlreadyExists:
            pass  # the cache does not have it yet
        return True

    async def _make_namespace(self, id: str, cluster: Key) -> None:
        metadata = {"name": id, "annotations": {CLUSTER: str(cluster)}}
        with contextlib.suppress(AlreadyExists):
            async with MAKE_NAMESPACE:
                await self._client.create(
                    NAMESPACES, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
                )

    async def _put_secret(self, plane: RKEControlPlane, id: str, user: User, seen: Object | None) -> None:
        server = f"{self._site.server_url}{PREFIX}{id}"
        token = self._tokens.get("", user.metadata.name)
        notes = {SERVER: server, AUTHORITY: self._site.ca_checksum[:16]}
        if seen is not None and token is not None:
            same = {**notes, TOKEN_NOTE: token.hash}
            if all(seen.metadata.annotations.get(name) == value for name, value in same.items()):
                return
        bearer, notes[TOKEN_NOTE] = await self._token(plane, id, user, token)
        config = files.build(server, ca_pem=self._site.ca_pem, token=bearer, name="cluster", user="user")
        config["contexts"][0]["name"] = config["current-context"] = "default"
        data = {capi_names.KUBECONFIG_KEY: yaml.safe_dump(config, sort_keys=False).encode(), TOKEN_KEY: bearer.encode()}
        name = capi_names.kubeconfig_secret(plane.spec.cluster_name)
        wanted = owned_secret(plane, name, data, annotations=notes)
        if seen is None:
            await create_owned(self._client, plane, wanted, CREATE)
            return
        # With its version: a Secret that was changed or replaced since is not overwritten.
        metadata = {"annotations": notes, "resourceVersion": seen.metadata.resource_version}
        async with RENEW:
            await self._client.patch(SECRETS, *seen.key, {"metadata": metadata, "data": wanted["data"]})

    async def _token(self, plane: RKEControlPlane, id: str, user: User, token: Token | None) -> tuple[str, str]:
        """Return the token in the Secret if it matches the Token, else a new one, and its hash."""
        if token is not None:
            place = plane.metadata.namespace, capi_names.kubeconfig_secret(plane.spec.cluster_name)
            data = await secret_data(self._client, *place) or {}
            present = data.get(TOKEN_KEY, b"").decode(errors="replace")
            if tokens.is_of(present, token) and tuple(token.cluster_names) == (id,):
                return present, token.hash
            # The secret of a Token cannot be recovered and its hash is immutable, so the Token is replaced.
            async with DROP_TOKEN:
                await self._client.delete(TOKEN.target, "", token.metadata.name, uid=token.metadata.uid)
        made = tokens.mint(
            user.metadata.name,
            name=user.metadata.name,
            clusters=[id],
            description=f"In the kubeconfig of Cluster {cluster_of(plane)}",
            labels={TOKEN_KIND: SYSTEM},
        )
        try:
            # If the manager stops before it writes the Secret, the secret of this Token is lost. The next reconcile
            # replaces the Token.
            async with MAKE_TOKEN:
                await self._client.create(TOKEN.target, "", made.obj)
        except AlreadyExists as error:  # the cache does not have it yet
            raise Retryable(str(error)) from None
        return made.bearer, made.obj["hash"]


def _labelled(plane: RKEControlPlane) -> tuple[str]:
    """Return the index key by which Secrets of the Cluster are labelled."""
    return (f"{plane.metadata.namespace}/{capi_names.label_value(plane.spec.cluster_name)}",)


def _being(grant: ClusterRoleTemplateBinding) -> object:
    return grant.metadata.uid, grant.metadata.deleting
