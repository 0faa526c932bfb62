"""Authentication of hosts: map a token and a host's own description to the Machine it may act for, or to a refusal.

The state of a token is read from the server for every request, and its first use is written on the condition that
nobody else has written in the meantime. Therefore, if two hosts present the same token at the same moment, one of them
is refused. A client without a valid token learns nothing that it did not know.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube.client import Client
from remuda.kube.conditions import condition
from remuda.kube.core import SECRET, SECRETS, Secret
from remuda.kube.errors import AlreadyExists, Conflict
from remuda.kube.objects import Key
from remuda.providers import ProviderError
from remuda.providers.bootstrap import clusters, custom, objects, tokens
from remuda.providers.bootstrap.custom import BadRequest
from remuda.providers.bootstrap.tokens import RegistrationToken
from remuda.providers.shared import names, plan_access
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP, TOKEN_MISUSED, RKEBootstrap
from remuda.runtime.events import Events
from remuda.runtime.steps import step

CLAIM = step("registration.claim-token", "records which host has used a bootstrap token")
REQUEST = step("registration.request", "requests the objects of a host that registers itself")
FORGET = step("registration.forget-request", "deletes the answered request of a host")
REPORT = step("registration.report", "records that a bootstrap token was misused")

RETRY_SECONDS = 5.0

# One text for every cause: a client without a valid token must not learn which objects exist.
_UNKNOWN = "unknown or expired token"


class HostRefused(ProviderError):
    """Refusal of a host's request. The text is for the reader of the host's log. `retry_after` is in seconds; 0 means
    that a retry does not help."""

    def __init__(self, code: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


class AuthenticatedHost(NamedTuple):
    """Host that a token authenticates."""

    id: str
    machine: Machine
    bootstrap: RKEBootstrap


class Callers:
    def __init__(self, client: Client, events: Events, hold_seconds: float) -> None:
        self._client = client
        self._events = events
        self._hold_seconds = hold_seconds

    async def admit(self, text: str, headers: Mapping[str, str], *, use: bool) -> AuthenticatedHost:
        """Return the host that the token authenticates. With `use`, mark the token as used and register an unknown
        host. Raises HostRefused."""
        headers = {name.lower(): value for name, value in headers.items()}
        try:
            id = custom.machine_id(headers)
            token = tokens.parse(text)
            if token is None:
                raise HostRefused(401, _UNKNOWN)
            if token.purpose == "machine":
                return await self._machine_of_token(token, id, use=use)
            cluster = await self._cluster_of_token(token)
            found = await self._known(cluster, id)
            if found is None:
                if not use:
                    raise HostRefused(404, "this host has not registered yet")
                found = await self._request(cluster, id, custom.collect(headers))
            elif use:
                await self._forget(cluster, id)
            return AuthenticatedHost(id, found, await self._bootstrap_of_machine(found))
        except BadRequest as error:
            raise HostRefused(400, str(error)) from None

    async def _machine_of_token(self, token: RegistrationToken, id: str, *, use: bool) -> AuthenticatedHost:
        for attempt in range(1, objects.RACES):
            secret = await objects.find(
                self._client, SECRET, Key(token.about.namespace, names.bootstrap_secret(token.about.name))
            )
            ledger = tokens.read(secret.metadata.annotations.get(tokens.LEDGER, "")) if secret is not None else None
            if secret is None or ledger is None or secret.type != names.BOOTSTRAP_TYPE:
                raise HostRefused(401, _UNKNOWN)
            verdict = tokens.judge(ledger, token, id)
            if verdict != "good":
                raise await self._refused(verdict, token, tokens.user(ledger, token), id)
            bootstrap, machine = await self._machine_of_bootstrap(token.about)
            # The Secret may be that of an earlier RKEBootstrap of this name: its token must not open the new plan.
            if not plan_access.is_of(secret.metadata, bootstrap.metadata.uid):
                raise HostRefused(401, _UNKNOWN)
            if use:
                await self._refuse_clone(machine, id)
            claimed = tokens.claim(ledger, token, id)
            if not use or claimed is ledger or await self._claim(secret, claimed):
                return AuthenticatedHost(id, machine, bootstrap)
            await asyncio.sleep(objects.RACE.seconds(attempt))
        raise HostRefused(503, "other hosts use this token at the same moment", RETRY_SECONDS)

    async def _machine_of_bootstrap(self, key: Key) -> tuple[RKEBootstrap, Machine]:
        bootstrap = await objects.find(self._client, RKE_BOOTSTRAP, key)
        owner = None if bootstrap is None else bootstrap.metadata.owner(MACHINE.name, MACHINE.group)
        machine = None if owner is None else await objects.find(self._client, MACHINE, Key(key.namespace, owner.name))
        if bootstrap is None or owner is None or machine is None or machine.metadata.uid != owner.uid:
            raise HostRefused(403, "the Machine of this token was deleted")
        if bootstrap.metadata.deleting or machine.metadata.deleting:
            raise HostRefused(403, f"Machine {machine.key} is being deleted")
        return bootstrap, machine

    async def _refuse_clone(self, machine: Machine, id: str) -> None:
        """Two hosts with one id would take each other's place when they register again."""
        if machine.metadata.labels.get(names.MACHINE_ID) == id:
            return
        for other in await self._of_id(machine.metadata.namespace, id):
            if other.metadata.uid != machine.metadata.uid and not other.metadata.deleting:
                why = (
                    f"the host of Machine {other.key} has the same id. Was this one cloned from it? Then remove the "
                    "agent's configuration (/etc/rancher/agent) from the image"
                )
                raise HostRefused(409, why)

    async def _of_id(self, namespace: str, id: str) -> list[Machine]:
        listing = await self._client.list(MACHINE.target, namespace, label_selector=f"{names.MACHINE_ID}={id}")
        return [MACHINE.decode(item) for item in listing.items]

    async def _claim(self, secret: Secret, ledger: tokens.TokenLedger) -> bool:
        """Record the use of a token; return whether no other request was faster."""
        patch = {
            "metadata": {
                "annotations": {tokens.LEDGER: tokens.write(ledger)},
                "resourceVersion": secret.metadata.resource_version,
            }
        }
        try:
            async with CLAIM:
                await self._client.patch(SECRETS, *secret.key, patch)
        except Conflict:
            return False
        return True

    async def _refused(self, verdict: tokens.Verdict, token: RegistrationToken, user: str, id: str) -> HostRefused:
        if verdict == "replayed":
            await self._report(token.about, user, id)
            return HostRefused(403, "this token was used by another host and is valid only for that host")
        if verdict == "expired":
            return HostRefused(
                401, "this token has expired: the server was started too long ago, or its clock is wrong"
            )
        if verdict == "spent":
            return HostRefused(401, "this token was already used: the bootstrap data of the machine has a newer one")
        return HostRefused(401, _UNKNOWN)

    async def _report(self, key: Key, user: str, id: str) -> None:
        """Report misuse of a token. The condition does not change with each attempt, so that no client can cause
        endless writes."""
        bootstrap = await objects.find(self._client, RKE_BOOTSTRAP, key)
        if bootstrap is None:
            return
        self._events.warning(
            bootstrap, TOKEN_MISUSED, f"refused host {id}: host {user} has already used this bootstrap token"
        )
        message = f"refused another host that presented the bootstrap token of host {user}; events name it"
        try:
            await objects.mark(self._client, key, condition(TOKEN_MISUSED, True, "Replayed", message), REPORT)
        except objects.Contested:
            pass  # others report it at the same moment; the event is recorded

    # -- hosts that register themselves

    async def _cluster_of_token(self, token: RegistrationToken) -> Cluster:
        name = clusters.registration_secret(token.about.name)
        secret = await objects.find(self._client, SECRET, Key(token.about.namespace, name))
        known = secret.data.get(clusters.TOKEN, b"").decode("utf-8", "replace") if secret is not None else ""
        if secret is None or secret.type != clusters.REGISTRATION_TYPE or not known:
            raise HostRefused(401, _UNKNOWN)
        if not tokens.matches(token.text, known):
            raise HostRefused(401, _UNKNOWN)
        cluster = await objects.find(self._client, CLUSTER, token.about)
        if cluster is None or cluster.metadata.deleting:
            raise HostRefused(403, f"Cluster {token.about} is being deleted")
        return cluster

    async def _known(self, cluster: Cluster, id: str) -> Machine | None:
        """Return the Machine of a host that registers again, even if the manager has created that Machine."""
        machines = await self._of_id(cluster.metadata.namespace, id)
        found = clusters.find([one for one in machines if one.spec.cluster_name == cluster.metadata.name], id)
        if found is not None and found.metadata.deleting:
            why = f"Machine {found.key} of this host is being deleted: run the command again after that"
            raise HostRefused(409, why)
        return found

    async def _forget(self, cluster: Cluster, id: str) -> None:
        """Delete the request of a host that did not receive the answer."""
        found = await objects.find(self._client, SECRET, Key(cluster.metadata.namespace, custom.machine_name(id)))
        if found is not None and found.type == names.REQUEST_TYPE:
            async with FORGET:
                await objects.delete(self._client, SECRET, found)

    async def _bootstrap_of_machine(self, machine: Machine) -> RKEBootstrap:
        reference = machine.spec.bootstrap.config_ref
        if reference is None or (reference.api_group, reference.kind) != (RKE_BOOTSTRAP.group, RKE_BOOTSTRAP.name):
            raise HostRefused(409, f"Machine {machine.key} is not bootstrapped by an RKEBootstrap")
        found = await objects.find(self._client, RKE_BOOTSTRAP, Key(machine.metadata.namespace, reference.name))
        if found is None or found.metadata.deleting:
            raise HostRefused(409, f"RKEBootstrap {machine.metadata.namespace}/{reference.name} of this host is gone")
        return found

    async def _request(self, cluster: Cluster, id: str, values: Mapping[str, list[str]]) -> Machine:
        custom.read(values)  # an invalid request is refused at once
        obj = custom.request_secret(cluster, values, id)
        key = Key(cluster.metadata.namespace, obj["metadata"]["name"])
        with contextlib.suppress(AlreadyExists):  # asked before, and went away before the answer
            async with REQUEST:
                await self._client.create(SECRETS, key.namespace, obj)
        try:
            answered = await objects.until(self._client, SECRET, key, _is_answered, self._hold_seconds)
        except TimeoutError:
            missing = f"the controller has not answered for Cluster {cluster.key} yet; is the Cluster paused?"
            raise HostRefused(503, missing, RETRY_SECONDS) from None
        async with FORGET:
            await objects.delete(self._client, SECRET, answered)
        why = answered.metadata.annotations.get(custom.REFUSED)
        if why:
            raise HostRefused(409, why)
        name = answered.metadata.labels[names.MACHINE_NAME]
        machine = await objects.find(self._client, MACHINE, Key(key.namespace, name))
        if machine is None:
            raise HostRefused(503, f"Machine {key.namespace}/{name} has just been deleted", RETRY_SECONDS)
        return machine


def _is_answered(secret: Secret) -> bool:
    return names.MACHINE_NAME in secret.metadata.labels or custom.REFUSED in secret.metadata.annotations
