"""Hosts register: they show a token, and get a kubeconfig that opens their plan Secret and nothing else.

Works in every replica, whether or not it leads, and keeps nothing in memory: what a token is good for is read from the
server for every request, and its first use is written with the condition that nobody else has written meanwhile. So of
two hosts that show the same token at the same moment one is refused.

A request waits for what controllers still have to make, for less time than a host waits for its answer. Whoever shows
no good token is told nothing that he did not know.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import NamedTuple, TypeVar

import msgspec

from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube import conditions
from remuda.kube.client import Client, Target
from remuda.kube.conditions import condition
from remuda.kube.core import SECRET, SECRETS, Secret
from remuda.kube.errors import StatusError
from remuda.kube.objects import Condition, Key, Kind, Object
from remuda.providers import names
from remuda.providers.bootstrap import access, clusters, custom, tokens
from remuda.providers.bootstrap.custom import BadRequest
from remuda.providers.bootstrap.site import Site
from remuda.providers.bootstrap.tokens import Token
from remuda.providers.bootstrap.types import AGENT_CONNECTED, RKE_BOOTSTRAP, TOKEN_MISUSED, RKEBootstrap
from remuda.runtime.draft import Draft, save
from remuda.runtime.events import Events
from remuda.runtime.queue import Backoff
from remuda.runtime.steps import Step, step

CLAIM = step("registration.claim-token", "notes which host has used a bootstrap token")
REQUEST = step("registration.request", "asks for the objects of a host that somebody made")
FORGET = step("registration.forget-request", "takes the answered request of a host away")
IDENTIFY = step("registration.identify", "labels a Machine with the id of its host")
PUBLISH = step("registration.publish", "writes that a host's agent has connected")
REPORT = step("registration.report", "writes that a bootstrap token was misused")

HOLD_SECONDS = 45.0  # hosts give up after a minute, and are told before that what is missing
_RETRY_SECONDS = 5.0
_RACES = 10
_RACE = Backoff(first=0.01, most=1.0)  # what the winner wrote may not be there to be read yet
_CONFIG_FILE = "config.yaml.d/50-rancher.yaml"

_UNKNOWN = "the token is not known here, or not any more"

T = TypeVar("T", bound=Object)


class Refusal(Exception):
    """Why a host does not get what it asked for, in words for who reads its log. `retry_after` is in seconds; 0:
    another try does not help."""

    def __init__(self, code: int, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after = retry_after


class ConnectionInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What an agent keeps in its connection-info file."""

    kube_config: str
    namespace: str
    secret_name: str

    def __repr__(self) -> str:
        return f"<connection to {self.namespace}/{self.secret_name}>"  # never the token


class _Host(NamedTuple):
    """Whom a token speaks for."""

    id: str
    machine: Machine
    bootstrap: RKEBootstrap


class Registration:
    def __init__(self, client: Client, events: Events, site: Site, *, hold_seconds: float = HOLD_SECONDS) -> None:
        self._client = client
        self._events = events
        self._site = site
        self._hold_seconds = hold_seconds

    async def connect(self, token: str, headers: Mapping[str, str]) -> ConnectionInfo:
        """`headers` by lower-case names. Raises Refusal."""
        host = await self._admit(token, headers, use=True)
        account_token = await self._account_token(host.bootstrap)
        await self._identify(host)
        await self._mark(
            host.bootstrap.key, condition(AGENT_CONNECTED, True, "Connected", "its agent has connected"), PUBLISH
        )
        return ConnectionInfo(
            kube_config=self._kubeconfig(account_token),
            namespace=host.bootstrap.metadata.namespace,
            secret_name=names.plan_secret(host.bootstrap.metadata.name),
        )

    async def cluster_info(self, token: str, headers: Mapping[str, str]) -> str:
        """What `X-Cattle-Field` asks for. Raises Refusal."""
        host = await self._admit(token, headers, use=False)
        field = headers.get("x-cattle-field", "").strip().lower()
        if field != "kubernetesversion":
            raise Refusal(400, "the header X-Cattle-Field must be kubernetesversion")
        if not host.machine.spec.version:
            raise Refusal(404, f"Machine {host.machine.key} does not say which version of Kubernetes it shall run")
        return host.machine.spec.version

    async def config_yaml(self, token: str, headers: Mapping[str, str]) -> str:
        """The distribution's config file of the host's plan. Raises Refusal."""
        host = await self._admit(token, headers, use=False)
        name = names.plan_secret(host.bootstrap.metadata.name)
        plan = await self._find(SECRET, Key(host.bootstrap.metadata.namespace, name))
        content = _planned_file(plan.data.get("plan", b"") if plan is not None else b"")
        if content is None:
            raise Refusal(404, "the plan of this host has no such file yet", _RETRY_SECONDS)
        return content

    # who is there

    async def _admit(self, text: str, headers: Mapping[str, str], *, use: bool) -> _Host:
        headers = {name.lower(): value for name, value in headers.items()}
        try:
            id = custom.machine_id(headers)
            token = tokens.parse(text)
            if token is None:
                raise Refusal(401, _UNKNOWN)
            if token.purpose == "machine":
                return await self._machine_of_token(token, id, use=use)
            cluster = await self._cluster_of_token(token)
            found = await self._known(cluster, id)
            if found is None:
                if not use:
                    raise Refusal(404, "this host has not registered yet")
                found = await self._request(cluster, id, custom.collect(headers))
            return _Host(id, found, await self._bootstrap_of_machine(found))
        except BadRequest as error:
            raise Refusal(400, str(error)) from None

    async def _machine_of_token(self, token: Token, id: str, *, use: bool) -> _Host:
        for attempt in range(1, _RACES):
            secret = await self._find(SECRET, Key(token.about.namespace, names.bootstrap_secret(token.about.name)))
            ledger = tokens.read(secret.metadata.annotations.get(tokens.LEDGER, "")) if secret is not None else None
            if secret is None or ledger is None or secret.type != names.BOOTSTRAP_TYPE:
                raise Refusal(401, _UNKNOWN)
            verdict = tokens.judge(ledger, token, id)
            if verdict != "good":
                raise await self._refused(verdict, token, tokens.user(ledger, token), id)
            bootstrap, machine = await self._machine_of_bootstrap(token.about)
            if not access.is_of(secret.metadata, bootstrap.metadata.uid):
                raise Refusal(401, _UNKNOWN)
            claimed = tokens.claim(ledger, token, id)
            if not use or claimed is ledger or await self._claim(secret, claimed):
                return _Host(id, machine, bootstrap)
            await asyncio.sleep(_RACE.seconds(attempt))
        raise Refusal(503, "others use this token at the same moment", _RETRY_SECONDS)

    async def _machine_of_bootstrap(self, key: Key) -> tuple[RKEBootstrap, Machine]:
        bootstrap = await self._find(RKE_BOOTSTRAP, key)
        owner = None if bootstrap is None else bootstrap.metadata.owner(MACHINE.name, MACHINE.group)
        machine = None if owner is None else await self._find(MACHINE, Key(key.namespace, owner.name))
        if bootstrap is None or owner is None or machine is None or machine.metadata.uid != owner.uid:
            raise Refusal(403, "the Machine of this token is gone")
        if bootstrap.metadata.deleting or machine.metadata.deleting:
            raise Refusal(403, f"Machine {machine.key} is being deleted")
        return bootstrap, machine

    async def _claim(self, secret: Secret, ledger: tokens.Ledger) -> bool:
        """Whether nobody was faster."""
        patch = {
            "metadata": {
                "annotations": {tokens.LEDGER: tokens.write(ledger)},
                "resourceVersion": secret.metadata.resource_version,
            }
        }
        try:
            async with CLAIM:
                await self._client.patch(SECRETS, *secret.key, patch)
        except StatusError as error:
            if error.reason != "Conflict":
                raise
            return False
        return True

    async def _refused(self, verdict: tokens.Verdict, token: Token, user: str, id: str) -> Refusal:
        if verdict == "replayed":
            await self._report(token.about, user, id)
            return Refusal(403, "this token has been used by another host, and is good for that one only")
        if verdict == "expired":
            return Refusal(401, "this token has expired: the server was started too long ago, or its clock is wrong")
        if verdict == "spent":
            return Refusal(
                401, "this token has been used and is spent: the bootstrap data of the machine has a newer one"
            )
        return Refusal(401, _UNKNOWN)

    async def _report(self, key: Key, user: str, id: str) -> None:
        """The condition says the same however often it happens, so that nobody can make us write for ever."""
        bootstrap = await self._find(RKE_BOOTSTRAP, key)
        if bootstrap is None:
            return
        self._events.warning(
            bootstrap, TOKEN_MISUSED, f"host {id} showed the bootstrap token that host {user} has used; it was refused"
        )
        message = f"another host than {user} has shown its bootstrap token and was refused; events name it"
        try:
            await self._mark(key, condition(TOKEN_MISUSED, True, "Replayed", message), REPORT)
        except Refusal:
            pass  # others report at the same moment; the event is told

    # hosts that somebody made

    async def _cluster_of_token(self, token: Token) -> Cluster:
        name = clusters.registration_secret(token.about.name)
        secret = await self._find(SECRET, Key(token.about.namespace, name))
        known = secret.data.get(clusters.TOKEN, b"").decode("utf-8", "replace") if secret is not None else ""
        if secret is None or secret.type != clusters.REGISTRATION_TYPE or not known:
            raise Refusal(401, _UNKNOWN)
        if not tokens.matches(token.text, known):
            raise Refusal(401, _UNKNOWN)
        cluster = await self._find(CLUSTER, token.about)
        if cluster is None or cluster.metadata.deleting:
            raise Refusal(403, f"Cluster {token.about} is being deleted")
        return cluster

    async def _known(self, cluster: Cluster, id: str) -> Machine | None:
        """A host that registers once more is the same Machine, also when that was made by us."""
        listing = await self._client.list(
            MACHINE.target, cluster.metadata.namespace, label_selector=f"{names.MACHINE_ID}={id}"
        )
        machines = [MACHINE.decode(item) for item in listing.items]
        found = clusters.find([one for one in machines if one.spec.cluster_name == cluster.metadata.name], id)
        if found is not None and found.metadata.deleting:
            why = f"Machine {found.key} of this host is being deleted: run the command again when it is gone"
            raise Refusal(409, why)
        return found

    async def _bootstrap_of_machine(self, machine: Machine) -> RKEBootstrap:
        reference = machine.spec.bootstrap.config_ref
        if reference is None or (reference.api_group, reference.kind) != (RKE_BOOTSTRAP.group, RKE_BOOTSTRAP.name):
            raise Refusal(409, f"Machine {machine.key} is not bootstrapped by an RKEBootstrap")
        found = await self._find(RKE_BOOTSTRAP, Key(machine.metadata.namespace, reference.name))
        if found is None or found.metadata.deleting:
            raise Refusal(409, f"RKEBootstrap {machine.metadata.namespace}/{reference.name} of this host is gone")
        return found

    async def _request(self, cluster: Cluster, id: str, values: Mapping[str, list[str]]) -> Machine:
        custom.read(values)  # what cannot be used is told at once
        obj = custom.request_secret(cluster, values, id)
        key = Key(cluster.metadata.namespace, obj["metadata"]["name"])
        try:
            async with REQUEST:
                await self._client.create(SECRETS, key.namespace, obj)
        except StatusError as error:
            if error.reason != "AlreadyExists":  # asked before, and went away before the answer
                raise
        answered = await self._until(SECRET, key, _is_answered, f"what Cluster {cluster.key} needs for it is not there")
        async with FORGET:
            await self._delete(SECRETS, answered)
        why = answered.metadata.annotations.get(custom.REFUSED)
        if why:
            raise Refusal(409, why)
        name = answered.metadata.labels[names.MACHINE_NAME]
        machine = await self._find(MACHINE, Key(key.namespace, name))
        if machine is None:
            raise Refusal(503, f"Machine {key.namespace}/{name} has just been deleted", _RETRY_SECONDS)
        return machine

    async def _delete(self, target: Target, obj: Object) -> None:
        try:
            await self._client.delete(target, *obj.key, uid=obj.metadata.uid)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    # what a host gets

    async def _account_token(self, bootstrap: RKEBootstrap) -> str:
        def holds(secret: Secret) -> bool:
            return access.is_of(secret.metadata, bootstrap.metadata.uid) and _has_token(secret)

        key = Key(bootstrap.metadata.namespace, access.token_secret(bootstrap.metadata.name))
        missing = f"the account of RKEBootstrap {bootstrap.key} is not there yet"
        found = await self._until(SECRET, key, holds, missing)
        return found.data[access.TOKEN_KEY].decode()

    def _kubeconfig(self, token: str) -> str:
        """JSON, which every reader of YAML reads."""
        authority = base64.b64encode(self._site.ca_pem).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "agent",
                    "cluster": {"server": self._site.server_url, "certificate-authority-data": authority},
                }
            ],
            "users": [{"name": "agent", "user": {"token": token}}],
            "contexts": [{"name": "agent", "context": {"cluster": "agent", "user": "agent"}}],
            "current-context": "agent",
        }
        return msgspec.json.format(msgspec.json.encode(config), indent=2).decode()

    async def _identify(self, host: _Host) -> None:
        if host.machine.metadata.labels.get(names.MACHINE_ID) == host.id:
            return
        async with IDENTIFY:
            await self._client.patch(
                MACHINE.target, *host.machine.key, {"metadata": {"labels": {names.MACHINE_ID: host.id}}}
            )

    async def _mark(self, key: Key, news: Condition, step: Step) -> None:
        for attempt in range(1, _RACES):
            try:
                value = await self._client.get(RKE_BOOTSTRAP.target, *key)
                draft = Draft(RKE_BOOTSTRAP.target, value)
                generation = draft.metadata.get("generation", 0)
                present = conditions.find(RKE_BOOTSTRAP.decode(value).status.conditions, news.type)
                if present is not None and (present.status, present.message) == (news.status, news.message):
                    return
                conditions.put(draft.status, [news], generation=generation)
                await save(self._client, draft, step)
                return
            except StatusError as error:
                if error.reason != "Conflict":
                    raise
            await asyncio.sleep(_RACE.seconds(attempt))
        raise Refusal(503, f"RKEBootstrap {key} changes too often", _RETRY_SECONDS)

    # reading

    async def _find(self, kind: Kind[T], key: Key) -> T | None:
        try:
            return kind.decode(await self._client.get(kind.target, *key))
        except StatusError as error:
            if error.code != 404:
                raise
            return None

    async def _until(self, kind: Kind[T], key: Key, holds: Callable[[T], bool], missing: str) -> T:
        """The object as soon as that holds of it."""
        try:
            async with asyncio.timeout(self._hold_seconds):
                while True:
                    found = await self._follow(kind, key, holds)
                    if found is not None:
                        return found
        except TimeoutError:
            raise Refusal(503, missing, _RETRY_SECONDS) from None

    async def _follow(self, kind: Kind[T], key: Key, holds: Callable[[T], bool]) -> T | None:
        selector = f"metadata.name={key.name}"
        listing = await self._client.list(kind.target, key.namespace, field_selector=selector)
        for item in listing.items:
            if holds(found := kind.decode(item)):
                return found
        changes = self._client.watch(
            kind.target, key.namespace, field_selector=selector, resource_version=listing.resource_version
        )
        async with aclosing(changes):
            try:
                async for change in changes:
                    if change.type in ("ADDED", "MODIFIED") and holds(found := kind.decode(change.value)):
                        return found
            except StatusError as error:
                if error.code != 410:
                    raise
        return None


def _is_answered(secret: Secret) -> bool:
    return names.MACHINE_NAME in secret.metadata.labels or custom.REFUSED in secret.metadata.annotations


def _has_token(secret: Secret) -> bool:
    return secret.type == access.TOKEN_TYPE and bool(secret.data.get(access.TOKEN_KEY))


class _File(msgspec.Struct):
    path: str = ""
    content: str = ""


class _Plan(msgspec.Struct):
    files: list[_File] | None = None


def _planned_file(plan: bytes) -> str | None:
    try:
        files = msgspec.json.decode(plan, type=_Plan).files or [] if plan else []
        found = next((file for file in files if file.path.endswith(_CONFIG_FILE)), None)
        return None if found is None else base64.b64decode(found.content).decode()
    except (msgspec.MsgspecError, ValueError):
        return None
