"""The engine without its wire: store, registry, definitions, handlers and upkeep, put together as the server does.

`Engine.restart` closes everything, in the middle of whatever is under way, and opens the same data again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from remuda.apiserver.auth.authenticate import Authenticator
from remuda.apiserver.auth.jws import KeySet, Signer
from remuda.apiserver.auth.rbac import RbacAuthorizer
from remuda.apiserver.auth.token_authenticators import ServiceAccountTokens
from remuda.apiserver.auth.tokens import TokenSettings
from remuda.apiserver.auth.user import MASTERS, User
from remuda.apiserver.client import LocalClient
from remuda.apiserver.handlers import register_handlers
from remuda.apiserver.kinds import builtin_resources
from remuda.apiserver.registry.crds import TABLE as DEFINITIONS
from remuda.apiserver.registry.crds import Definitions, with_schema_validation
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.registry.served import Served
from remuda.apiserver.storage.sqlite import SqliteStore
from remuda.apiserver.storage.types import StoreEvent
from remuda.apiserver.upkeep.namespaces import create_first_namespaces
from remuda.apiserver.upkeep.upkeep import Upkeep
from remuda.kube.client import Propagation, Target
from remuda.kube.errors import StatusError
from tests.lab.limits import LIMIT_SECONDS

Json = dict[str, Any]

CA = b"the certificate of the authority"
ADMIN = User("admin", groups=(MASTERS, "system:authenticated"))
CONFIGMAPS, SECRETS, PODS = Target("v1", "configmaps"), Target("v1", "secrets"), Target("v1", "pods")
NAMESPACES, ACCOUNTS = Target("v1", "namespaces"), Target("v1", "serviceaccounts")
NODES, EVENTS = Target("v1", "nodes"), Target("v1", "events")
BUDGETS = Target("policy/v1", "poddisruptionbudgets")
CLUSTER_ROLES = Target("rbac.authorization.k8s.io/v1", "clusterroles")
CRDS = Target("apiextensions.k8s.io/v1", "customresourcedefinitions")


class Engine:
    def __init__(self, path: Path, store: SqliteStore, key: ec.EllipticCurvePrivateKey) -> None:
        self._path = path
        self._key = key
        self._assemble(store)

    def _assemble(self, store: SqliteStore) -> None:
        key = self._key
        self.store = store
        self.tokens = TokenSettings()
        self.authorizer = RbacAuthorizer(store)
        keys = KeySet([key.public_key()])
        self.authenticator = Authenticator(
            [ServiceAccountTokens(keys, self.tokens, store.get, time.time)], api_audiences=self.tokens.api_audiences
        )
        served = Served(with_schema_validation(r) if r.table == DEFINITIONS else r for r in builtin_resources())
        self.registry = Registry(store, served, self.authorizer)
        self._definitions = Definitions(store, served)
        signer = Signer(key)
        register_handlers(self.registry, self.authenticator, self.authorizer, signer, self.tokens)
        self.upkeep = Upkeep(self.registry, signer=signer, ca=CA, event_ttl=timedelta(hours=1))
        self.client = self.client_of(ADMIN)
        self._committed = asyncio.Event()
        store.subscribe(self._on_commit)

    def _on_commit(self, events: Sequence[StoreEvent]) -> None:
        self._committed.set()

    @classmethod
    async def open(cls, path: Path, *, upkeep: bool = True) -> Engine:
        engine = cls(path, await SqliteStore.open(path), ec.generate_private_key(ec.SECP256R1()))
        await create_first_namespaces(engine.registry)
        if upkeep:
            await engine.upkeep.start()
        return engine

    def client_of(self, user: User) -> LocalClient:
        return LocalClient(self.registry, user, field_manager="test")

    async def close(self) -> None:
        await self.upkeep.close()
        self._definitions.close()
        await self.store.close()

    async def restart(self) -> None:
        await self.close()
        self._assemble(await SqliteStore.open(self._path))
        await self.upkeep.start()

    # -- waiting -------------------------------------------------------------------------------------------------

    async def eventually(self, what: Callable[[], Any]) -> Any:
        """The first truth `what` gives; asked again at every commit. Time is only the limit, never the measure."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not (found := what()):
            left = deadline - time.monotonic()
            assert left > 0, "this never happened"
            self._committed.clear()
            try:
                await asyncio.wait_for(self._committed.wait(), min(left, 0.05))
            except TimeoutError:
                continue
        return found

    async def settled(self) -> None:
        """Upkeep has nothing left to do."""
        await self.eventually(lambda: self.upkeep.is_idle)

    async def gone(self, target: Target, namespace: str, *names: str) -> None:
        await self.eventually(lambda: all(self.find(target, namespace, name) is None for name in names))

    # -- objects -------------------------------------------------------------------------------------------------

    def find(self, target: Target, namespace: str, name: str) -> Json | None:
        table = f"{target.plural}.{target.group}" if target.group else target.plural
        return self.registry.read(table, namespace, name)

    def names(self, target: Target, namespace: str = "") -> list[str]:
        table = f"{target.plural}.{target.group}" if target.group else target.plural
        return [entry.name for entry in self.store.scan(table, namespace)]

    async def create(self, target: Target, namespace: str, obj: Json) -> Json:
        return loads(await self.client.create(target, namespace, obj))

    async def namespace(self, name: str) -> str:
        await self.create(NAMESPACES, "", {"metadata": {"name": name}})
        return name

    async def patch(self, target: Target, namespace: str, name: str, patch: Any, subresource: str = "") -> Json:
        return loads(await self.client.patch(target, namespace, name, patch, subresource=subresource))

    async def delete(self, target: Target, namespace: str, name: str, propagation: Propagation = "") -> None:
        await self.client.delete(target, namespace, name, propagation=propagation)

    async def release(self, target: Target, namespace: str, name: str) -> None:
        """Takes all finalizers away."""
        await self.patch(target, namespace, name, {"metadata": {"finalizers": None}})

    async def define(self, definition: Json) -> Target:
        """A definition, established; the target of its first version."""
        await self.create(CRDS, "", definition)
        name = definition["metadata"]["name"]
        await self.eventually(lambda: self.condition(CRDS, name, "Established") == "True")
        spec = definition["spec"]
        return Target(f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["plural"])

    def condition(self, target: Target, name: str, kind: str, field: str = "status") -> str:
        """A field of a condition of a cluster-scoped object; empty when there is none."""
        found = self.find(target, "", name) or {}
        conditions = (found.get("status") or {}).get("conditions") or ()
        return next((one[field] for one in conditions if one["type"] == kind), "")


def definition(plural: str = "widgets", group: str = "test.io", *, namespaced: bool = True, **names: Any) -> Json:
    kind = plural.removesuffix("s").capitalize()
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List", **names},
            "versions": [version("v1", storage=True)],
        },
    }


def version(name: str, *, storage: bool = False, served: bool = True, spec: Json | None = None) -> Json:
    """A version whose objects have a free-form spec, or one of the properties given."""
    inner = {"type": "object", "properties": spec} if spec else {"type": "object", _FREE: True}
    schema = {"type": "object", "properties": {"spec": inner}}
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}}


_FREE = "x-kubernetes-preserve-unknown-fields"


def owner_reference(owner: Json, **more: Any) -> Json:
    identity = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
    return {**identity, "uid": owner["metadata"]["uid"], **more}


def owned(name: str, *owners: Json, finalizers: Sequence[str] = (), **more: Any) -> Json:
    """An object of these owners; `more` goes into each reference."""
    metadata: Json = {"name": name, "ownerReferences": [owner_reference(owner, **more) for owner in owners]}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"metadata": metadata}


def held(name: str, **more: Any) -> Json:
    return {"metadata": {"name": name, "finalizers": ["test.io/hold"]}, **more}


def loads(value: bytes) -> Json:
    found: Json = msgspec.json.decode(value)
    return found


async def refusal(attempt: Any) -> StatusError:
    """The error an awaited request ends with."""
    try:
        await attempt
    except StatusError as error:
        return error
    raise AssertionError("it was not refused")
