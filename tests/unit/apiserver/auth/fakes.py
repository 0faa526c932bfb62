"""A store in memory with just what authentication and authorisation read of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from remuda.apiserver.storage.types import Listener, Revision, StoreEntry, StoreEvent


class FakeStore:
    def __init__(self) -> None:
        self.entries: dict[tuple[str, str, str], StoreEntry] = {}
        self.listeners: list[Listener] = []
        self.revision = 0

    def get(self, table: str, namespace: str, name: str) -> StoreEntry | None:
        return self.entries.get((table, namespace, name))

    def intact(self, table: str, namespace: str = "") -> Sequence[StoreEntry]:
        return [e for e in self.entries.values() if e.table == table and namespace in ("", e.namespace)]

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def put(self, table: str, obj: dict[str, Any]) -> StoreEntry:
        return self.put_bytes(table, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], _encode(obj))

    def put_bytes(self, table: str, namespace: str, name: str, value: bytes) -> StoreEntry:
        self.revision += 1
        before = self.get(table, namespace, name)
        entry = StoreEntry(table, namespace, name, Revision(self.revision), value)
        self.entries[table, namespace, name] = entry
        self._notify(StoreEvent("MODIFIED" if before else "ADDED", entry, before))
        return entry

    def delete(self, table: str, namespace: str, name: str) -> None:
        entry = self.entries.pop((table, namespace, name))
        self._notify(StoreEvent("DELETED", entry, entry))

    def _notify(self, event: StoreEvent) -> None:
        for listener in self.listeners:
            listener([event])


_encode = msgspec.json.Encoder().encode

RBAC = "rbac.authorization.k8s.io"


class RbacStore(FakeStore):
    """Shorthands for RBAC objects."""

    def cluster_role(self, name: str, *rules: dict[str, Any], **more: Any) -> None:
        self.put(f"clusterroles.{RBAC}", {"metadata": {"name": name}, "rules": list(rules), **more})

    def role(self, namespace: str, name: str, *rules: dict[str, Any]) -> None:
        self.put(f"roles.{RBAC}", {"metadata": {"name": name, "namespace": namespace}, "rules": list(rules)})

    def bind_cluster(self, name: str, role: str, *subjects: dict[str, str]) -> None:
        ref = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
        obj = {"metadata": {"name": name}, "roleRef": ref, "subjects": list(subjects)}
        self.put(f"clusterrolebindings.{RBAC}", obj)

    def bind(self, namespace: str, name: str, role: str, *subjects: dict[str, str], kind: str = "Role") -> None:
        ref = {"apiGroup": RBAC, "kind": kind, "name": role}
        obj = {"metadata": {"name": name, "namespace": namespace}, "roleRef": ref, "subjects": list(subjects)}
        self.put(f"rolebindings.{RBAC}", obj)


def rule(verbs: str, resources: str = "", groups: str = "", names: str = "", urls: str = "") -> dict[str, Any]:
    """`rule("get,list", "pods")`: comma-separated lists; groups "" is the core group."""
    made: dict[str, Any] = {"verbs": verbs.split(",")}
    if resources:
        made["apiGroups"] = groups.split(",")
        made["resources"] = resources.split(",")
    if names:
        made["resourceNames"] = names.split(",")
    if urls:
        made["nonResourceURLs"] = urls.split(",")
    return made


def user_subject(name: str) -> dict[str, str]:
    return {"kind": "User", "apiGroup": RBAC, "name": name}


def group_subject(name: str) -> dict[str, str]:
    return {"kind": "Group", "apiGroup": RBAC, "name": name}


def service_account_subject(name: str, namespace: str = "") -> dict[str, str]:
    subject = {"kind": "ServiceAccount", "name": name}
    return {**subject, "namespace": namespace} if namespace else subject
