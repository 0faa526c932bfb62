"""Registration of existing hosts in a Cluster: the Cluster's registration Secret, and the hosts' requests.

Every Cluster whose infrastructure is an RKECluster has a Secret `<cluster>-registration` with a `token` and the
one-line `command` that registers a host; the user appends roles to the command. Delete the Secret to get a new token.

A host that registers creates a request, a Secret of type machine-request. From it the controller creates an
RKEBootstrap, a CustomMachine and a Machine, or it writes the reason for the refusal, which the host receives. The
request is deleted by the client that waits for the answer, or when it expires.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shlex
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.cluster_index import controlled_by, index_by_cluster, members
from remuda.capi.pause import is_paused
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube import clock
from remuda.kube.core import SECRET, SECRETS, Secret
from remuda.kube.errors import AlreadyExists, Conflict, NotFound
from remuda.kube.objects import Key, Kind
from remuda.providers.bootstrap import custom, script, tokens
from remuda.providers.bootstrap.custom import BadRequest
from remuda.providers.bootstrap.script import Environment
from remuda.providers.shared import names, secrets
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.types.bootstrap import CUSTOM_MACHINE, RKE_BOOTSTRAP
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.providers.shared.types.infrastructure import RKE_CLUSTER
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable, soonest
from remuda.runtime.steps import step

NAME = "clusterregistration"
CREATE = step("clusterregistration.create", "creates the Secret with the token that registers hosts for a Cluster")
RENEW = step("clusterregistration.renew-command", "writes the registration command of a Cluster for this manager")
CREATE_BOOTSTRAP = step("clusterregistration.create-bootstrap", "creates the RKEBootstrap of a host that registers")
CREATE_CUSTOM = step("clusterregistration.create-custommachine", "creates the CustomMachine of a host that registers")
CREATE_MACHINE = step("clusterregistration.create-machine", "creates the Machine of a host that registers")
ANSWER = step("clusterregistration.answer", "writes the result of a host's request")
FORGET = step("clusterregistration.forget", "deletes a request that its host has abandoned")

REGISTRATION_TYPE = "rke.cattle.io/cluster-registration"
TOKEN, COMMAND = "token", "command"
MACHINE_NAMESPACE = "rke.cattle.io/machine-namespace"
SITE = "remuda.dev/site"  # annotation: which manager the command is for, and with which environment

_REQUEST_SECONDS = 90.0  # longer than any host waits for the answer
_REQUESTS = "requests"  # an index


def registration_secret(cluster: str) -> str:
    return names.join(cluster, "registration")


def command(site: Site, token: str, variables: Environment) -> str:
    """Return the one-line registration command. It verifies the CA by its checksum, and downloads the script over TLS
    verified with that CA. The user appends roles."""
    url = shlex.quote(site.server_url)
    given = " ".join(shlex.quote(f"{name}={value}") for name, value in variables.items())
    shell = f"env {given} sh" if given else "sh"
    return (
        f"ca=$(mktemp) && curl -fsSk {url}/cacerts -o $ca && "
        f"echo '{site.ca_checksum} ' $ca | sha256sum -c >/dev/null && "
        f"curl -fsSL --cacert $ca {url}/system-agent-install.sh | sudo {shell} -s - --server {url} "
        f"--label 'cattle.io/os=linux' --token {shlex.quote(token)} --ca-checksum {site.ca_checksum}"
    )


class ClusterRegistrationController:
    def __init__(self, manager: Manager, site: Site) -> None:
        self._client = manager.client
        self._events = manager.events
        self._caches = manager.caches
        self._site = site
        self._clusters = manager.caches.of(CLUSTER)
        self._control_planes = manager.caches.of(RKE_CONTROL_PLANE)
        self._secrets = secrets.informer(manager.caches)
        index_by_cluster(manager.caches, MACHINE)
        self._secrets.index(_REQUESTS, lambda secret: [str(key) for key in _cluster_of_request(secret)])
        controller = manager.controller(NAME, CLUSTER, self.reconcile)
        controller.watch(self._secrets, _cluster_of_secret, "secret", facts=_secret_facts)
        controller.watch(self._control_planes, _cluster_of_control_plane, "controlplane", facts=script.environment_of)

    async def reconcile(self, key: Key) -> Outcome:
        cluster = self._clusters.get(*key)
        if cluster is None or cluster.metadata.deleting or not _is_ours(cluster):
            return DONE
        if is_paused(cluster, cluster.metadata):
            return Blocked("Paused", f"Cluster {key}", "the Cluster is paused")
        variables = self._environment(cluster)
        if variables is None:
            why = f"waiting for the control plane of Cluster {key}, which configures the agents"
            return Blocked("WaitingForControlPlane", f"Cluster {key}", why)
        await self._provide(cluster, variables)
        outcomes = [await self._answer(cluster, request) for request in self._secrets.select(_REQUESTS, str(key))]
        return soonest(*outcomes)

    # the registration Secret

    async def _provide(self, cluster: Cluster, variables: Environment) -> None:
        name = registration_secret(cluster.metadata.name)
        digest = _digest(self._site, variables)
        present = self._secrets.get(cluster.metadata.namespace, name)
        if present is None:
            token = tokens.make("cluster", cluster.key).text
            try:
                async with CREATE:
                    made = self._secret(cluster, name, token, variables)
                    await self._client.create(SECRETS, cluster.metadata.namespace, made)
            except AlreadyExists:
                raise Retryable(
                    f"Secret {cluster.metadata.namespace}/{name} belongs to another owner: rename it"
                ) from None
        elif present.metadata.annotations.get(SITE) != digest:
            found = SECRET.decode(await self._client.get(SECRETS, *present.key))
            # The token stays: commands that users have copied remain valid.
            token = found.data.get(TOKEN, b"").decode() or tokens.make("cluster", cluster.key).text
            made = self._secret(cluster, name, token, variables)
            patch = {
                "metadata": {
                    "annotations": {SITE: digest},
                    "resourceVersion": found.metadata.resource_version,
                },
                "data": made["data"],
            }
            async with RENEW:
                await self._client.patch(SECRETS, *present.key, patch)

    def _environment(self, cluster: Cluster) -> Environment | None:
        """None: not known yet."""
        key = script.control_plane_of(cluster)
        if key is None:
            return {}
        control_plane = self._control_planes.get(*key)
        return None if control_plane is None else script.environment_of(control_plane)

    def _secret(self, cluster: Cluster, name: str, token: str, variables: Environment) -> dict[str, Any]:
        data = {TOKEN: token, COMMAND: command(self._site, token, variables)}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": REGISTRATION_TYPE,
            "metadata": {
                "name": name,
                "labels": {names.CLUSTER_NAME: capi_names.label_value(cluster.metadata.name)},
                "annotations": {SITE: _digest(self._site, variables)},
                "ownerReferences": [msgspec.to_builtins(controlled_by(CLUSTER, cluster.metadata))],
            },
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
        }

    # requests

    async def _answer(self, cluster: Cluster, request: Secret) -> Outcome:
        age = clock.time() - clock.parse(request.metadata.creation_timestamp or clock.now())
        if age > _REQUEST_SECONDS:
            await self._forget(request)
            return DONE
        later = Requeue(
            max(_REQUEST_SECONDS - age, 1.0), f"request {request.key} is deleted unless its host collects the answer"
        )
        if names.MACHINE_NAME in request.metadata.labels or custom.REFUSED in request.metadata.annotations:
            return later
        try:
            said = custom.decode(request.data.get(custom.DATA, b""))
        except BadRequest as error:
            await self._refuse(request, str(error))
            return later
        machines = members(self._caches, MACHINE, cluster.key)
        present = find(machines, said.id)
        if present is not None and present.metadata.deleting:
            why = f"Machine {present.key} of this host is being deleted: run the command again after that"
            await self._refuse(request, why)
        elif present is not None:
            await self._accept(request, present.metadata.name)
        elif why := custom.refusal(said, machines):
            await self._refuse(request, why)
            self._events.warning(cluster, "HostRefused", f"cannot register host {said.node_name or said.id}: {why}")
        else:
            await self._make(cluster, said)
            await self._accept(request, said.name)
        return later

    async def _make(self, cluster: Cluster, request: custom.HostDescription) -> None:
        """Create the objects of a host, the Machine last, so that all objects that it refers to exist."""
        async with CREATE_BOOTSTRAP:
            await self._create(RKE_BOOTSTRAP, cluster, custom.bootstrap(request, cluster))
        async with CREATE_CUSTOM:
            await self._create(CUSTOM_MACHINE, cluster, custom.custom_machine(request, cluster))
        async with CREATE_MACHINE:
            await self._create(MACHINE, cluster, custom.machine(request, cluster))
        self._events.normal(
            cluster, "HostRegistered", f"host {request.node_name or request.id} is Machine {request.name}"
        )

    async def _create(self, kind: Kind[Any], cluster: Cluster, obj: dict[str, Any]) -> None:
        namespace, name = cluster.metadata.namespace, obj["metadata"]["name"]
        try:
            await self._client.create(kind.target, namespace, obj)
        except AlreadyExists:
            present = kind.decode(await self._client.get(kind.target, namespace, name))
            if present.metadata.deleting:
                raise Retryable(f"{kind.name} {namespace}/{name} of an earlier registration is being deleted") from None

    async def _accept(self, request: Secret, machine: str) -> None:
        labels = {names.MACHINE_NAME: machine, MACHINE_NAMESPACE: request.metadata.namespace}
        async with ANSWER:
            await self._client.patch(SECRETS, *request.key, {"metadata": {"labels": labels}})

    async def _refuse(self, request: Secret, why: str) -> None:
        async with ANSWER:
            await self._client.patch(SECRETS, *request.key, {"metadata": {"annotations": {custom.REFUSED: why}}})

    async def _forget(self, request: Secret) -> None:
        with contextlib.suppress(NotFound, Conflict):
            async with FORGET:
                await self._client.delete(SECRETS, *request.key, uid=request.metadata.uid)


def find(machines: list[Machine], id: str) -> Machine | None:
    """Return the Machine of a host, whoever created it. One that is being deleted counts only if there is no other."""
    found = [
        machine
        for machine in machines
        if machine.metadata.labels.get(names.MACHINE_ID) == id or machine.metadata.name == custom.machine_name(id)
    ]
    return min(found, key=lambda machine: machine.metadata.deleting, default=None)


def _is_ours(cluster: Cluster) -> bool:
    reference = cluster.spec.infrastructure_ref
    return reference is not None and (reference.api_group, reference.kind) == (RKE_CLUSTER.group, RKE_CLUSTER.name)


def _digest(site: Site, variables: Environment) -> str:
    if not variables:
        return site.digest
    return hashlib.sha256(json.dumps([site.digest, variables], sort_keys=True).encode()).hexdigest()


def _cluster_of_control_plane(control_plane: RKEControlPlane) -> list[Key]:
    return [Key(control_plane.metadata.namespace, control_plane.spec.cluster_name)]


def _cluster_of_request(secret: Secret) -> list[Key]:
    return _owner(secret) if secret.type == names.REQUEST_TYPE else []


def _cluster_of_secret(secret: Secret) -> list[Key]:
    return _owner(secret) if secret.type in (names.REQUEST_TYPE, REGISTRATION_TYPE) else []


def _owner(secret: Secret) -> list[Key]:
    owner = secret.metadata.owner(CLUSTER.name, CLUSTER.group)
    return [Key(secret.metadata.namespace, owner.name)] if owner is not None else []


def _secret_facts(secret: Secret) -> object:
    return secret.type, secret.metadata.labels, secret.metadata.annotations, secret.metadata.uid
