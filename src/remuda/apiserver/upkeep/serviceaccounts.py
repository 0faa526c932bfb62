"""ServiceAccounts: every namespace has `default`, and token Secrets contain a token as long as their account exists.

Missing data in a token Secret is filled in, and its CA follows the server's. The Secret is deleted with its account: a
new account of the same name has another uid, for which the old tokens are invalid.
"""

from __future__ import annotations

import contextlib
from base64 import b64encode
from collections.abc import Sequence
from functools import partial

from remuda.apiserver.auth.jws import Signer
from remuda.apiserver.auth.tokens import Ref, legacy_token
from remuda.apiserver.registry.calls import DeleteOptions
from remuda.apiserver.registry.identity import NAMESPACES
from remuda.apiserver.registry.objects import decode
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import StoreEntry, StoreEvent
from remuda.apiserver.upkeep.duty import CONTROLLERS, KeyedDuty, create, delete, modify
from remuda.kube.errors import AlreadyExists, NotFound

ACCOUNTS, SECRETS = "serviceaccounts", "secrets"
TOKEN_TYPE = "kubernetes.io/service-account-token"  # noqa: S105
ACCOUNT_NAME = "kubernetes.io/service-account.name"
ACCOUNT_UID = "kubernetes.io/service-account.uid"


class ServiceAccountsDuty(KeyedDuty):
    def __init__(self, registry: Registry, signer: Signer, ca: bytes) -> None:
        super().__init__("serviceaccounts", registry, self._reconcile)
        self._signer = signer
        self._ca = b64encode(ca).decode()
        # Token Secrets by account: one namespace may have thousands of accounts.
        self._named: dict[tuple[str, str], set[str]] = {}

    async def start(self) -> None:
        for entry in self.registry.store.intact(NAMESPACES):
            await self._ensure_default(entry.name)
        for entry in self.registry.store.intact(SECRETS):
            if TOKEN_TYPE.encode() in entry.value:
                self._note(entry)
                self.worker.add((SECRETS, entry.namespace, entry.name))

    def observe(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            entry = event.entry
            if entry.table == NAMESPACES and event.type == "ADDED":
                self.worker.add((ACCOUNTS, entry.name, "default"))
            elif entry.table == ACCOUNTS:
                if event.type == "DELETED":
                    self.worker.add((ACCOUNTS, entry.namespace, "default"))
                if event.type != "MODIFIED":
                    for name in self._named.get((entry.namespace, entry.name), ()):
                        self.worker.add((SECRETS, entry.namespace, name))
            elif entry.table == SECRETS and TOKEN_TYPE.encode() in entry.value:
                if event.type == "DELETED":
                    self._forget(entry)
                else:
                    self._note(entry)
                    self.worker.add((SECRETS, entry.namespace, entry.name))

    def _note(self, entry: StoreEntry) -> None:
        """Record a Secret under every account name that it has had; its current account is read when it is
        processed.
        """
        self._named.setdefault((entry.namespace, _account_of(entry)), set()).add(entry.name)

    def _forget(self, entry: StoreEntry) -> None:
        place = (entry.namespace, _account_of(entry))
        names = self._named.get(place, set())
        names.discard(entry.name)
        if not names:
            self._named.pop(place, None)

    async def _reconcile(self, key: tuple[str, str, str]) -> None:
        table, namespace, name = key
        if table == ACCOUNTS:
            await self._ensure_default(namespace)
        else:
            await self._fill_secret(namespace, name)

    async def _ensure_default(self, namespace: str) -> None:
        holder = self.registry.read(NAMESPACES, "", namespace)
        if holder is None or "deletionTimestamp" in holder["metadata"]:
            return
        if self.registry.store.latest(ACCOUNTS, namespace, "default") is None:
            account = {"metadata": {"name": "default"}}
            with contextlib.suppress(AlreadyExists, NotFound):  # NotFound: the namespace was deleted meanwhile
                await create(self.registry, ACCOUNTS, namespace, account, manager=CONTROLLERS)

    async def _fill_secret(self, namespace: str, name: str) -> None:
        entry = self.registry.store.get(SECRETS, namespace, name)
        if entry is None:
            return
        secret = decode(entry.value)
        if secret.get("type") != TOKEN_TYPE or "deletionTimestamp" in secret["metadata"]:
            return
        annotations = secret["metadata"].get("annotations") or {}
        account = self.registry.read(ACCOUNTS, namespace, annotations.get(ACCOUNT_NAME, ""))
        expected_uid = annotations.get(ACCOUNT_UID)
        if account is None or (expected_uid and expected_uid != account["metadata"]["uid"]):
            await self._delete_secret(secret)
        elif not self._is_filled(secret):
            fill = partial(self._filled, account=account)
            await modify(self.registry, SECRETS, namespace, name, fill, manager=CONTROLLERS)

    def _is_filled(self, secret: Obj) -> bool:
        data = secret.get("data") or {}
        annotated = (secret["metadata"].get("annotations") or {}).get(ACCOUNT_UID)
        return bool(annotated and data.get("token") and data.get("namespace") and data.get("ca.crt") == self._ca)

    def _filled(self, secret: Obj, account: Obj) -> Obj:
        meta = dict(secret["metadata"])
        uid = account["metadata"]["uid"]
        meta["annotations"] = {**(meta.get("annotations") or {}), ACCOUNT_UID: uid}
        data = dict(secret.get("data") or {})
        owner = Ref(account["metadata"]["name"], uid)
        data["ca.crt"] = self._ca
        if not data.get("namespace"):
            data["namespace"] = b64encode(meta["namespace"].encode()).decode()
        if not data.get("token"):
            token = legacy_token(self._signer, meta["namespace"], owner, meta["name"])
            data["token"] = b64encode(token.encode()).decode()
        return {**secret, "metadata": meta, "data": data}

    async def _delete_secret(self, secret: Obj) -> None:
        """Delete a token Secret whose account was deleted or recreated: its token is invalid."""
        resource = self.registry.resources.of_table(SECRETS)
        assert resource is not None
        meta = secret["metadata"]
        options = DeleteOptions(precondition_uid=meta["uid"], precondition_resource_version=meta["resourceVersion"])
        await delete(self.registry, resource, meta["namespace"], meta["name"], options)


def _account_of(entry: StoreEntry) -> str:
    """Return the account that a Secret names; empty if it names none."""
    annotations = decode(entry.value)["metadata"].get("annotations") or {}
    return str(annotations.get(ACCOUNT_NAME, ""))
