"""CustomResourceDefinitions: accepting names, establishing, and emptying before deletion.

A definition becomes Established as soon as its names are free in its group. One that is being deleted waits, held by
a finalizer, until its last object is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remuda.apiserver.registry.calls import DeleteOptions
from remuda.apiserver.registry.crds import CLEANUP, TABLE, names_in_use
from remuda.apiserver.registry.objects import decode, timestamp
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import Event
from remuda.apiserver.upkeep.duty import KeyedDuty, modify
from remuda.kube.errors import StatusError


class DefinitionsDuty(KeyedDuty):
    def __init__(self, registry: Registry) -> None:
        super().__init__("definitions", registry, self._reconcile)
        self._emptying: dict[str, str] = {}  # table of instances -> name of a definition being deleted

    async def start(self) -> None:
        for entry in self.registry.store.scan(TABLE):
            self.worker.add((entry.name,))

    def observe(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.entry.table == TABLE:
                self.worker.add((event.entry.name,))
                if event.type == "DELETED":  # names it held may be free for others now
                    for entry in self.registry.store.scan(TABLE):
                        self.worker.add((entry.name,))
            elif event.type == "DELETED" and event.entry.table in self._emptying:
                self.worker.add((self._emptying[event.entry.table],))

    async def _reconcile(self, key: tuple[str]) -> None:
        (name,) = key
        crd = self.registry.read(TABLE, "", name)
        if crd is None:
            self._emptying = {t: n for t, n in self._emptying.items() if n != name}
        elif "deletionTimestamp" in crd["metadata"]:
            await self._empty(crd)
        else:
            await self._establish(crd)

    async def _establish(self, crd: Obj) -> None:
        others = [decode(entry.value) for entry in self.registry.store.scan(TABLE)]
        accepted, reason, message = names_in_use(crd, others)
        status = dict(crd.get("status") or {})
        status["acceptedNames"] = accepted
        if reason:
            names = _condition("NamesAccepted", "False", reason, message)
            established = _condition("Established", "False", "NotAccepted", "not all names are accepted")
        else:
            names = _condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
            established = _condition(
                "Established", "True", "InitialNamesAccepted", "the initial names have been accepted"
            )
            if _has(status, "Established", "True"):
                established = next(c for c in status["conditions"] if c["type"] == "Established")
        status["conditions"] = with_condition(with_condition(status.get("conditions") or [], names), established)
        stored = set(status.get("storedVersions") or [])
        storage = next(v["name"] for v in crd["spec"]["versions"] if v.get("storage"))
        if storage not in stored:
            status["storedVersions"] = [*(status.get("storedVersions") or []), storage]
        if status != crd.get("status"):
            await self._write_status(crd["metadata"]["name"], status)

    async def _empty(self, crd: Obj) -> None:
        names = crd["spec"]["names"]
        table = f"{names['plural']}.{crd['spec']['group']}"
        name = crd["metadata"]["name"]
        if CLEANUP not in crd["metadata"].get("finalizers", []):
            return
        self._emptying[table] = name
        await self._delete_instances(table)
        if self.registry.store.count(table):
            return  # instances with finalizers; the last DELETED event brings us back

        def release(live: Obj) -> Obj:
            metadata = dict(live["metadata"])
            metadata["finalizers"] = [f for f in metadata.get("finalizers", []) if f != CLEANUP]
            if not metadata["finalizers"]:
                del metadata["finalizers"]
            return {**live, "metadata": metadata}

        await modify(self.registry, TABLE, "", name, release)

    async def _delete_instances(self, table: str) -> None:
        resource = self.registry.resources.of_table(table)
        if resource is None:
            return
        for entry in self.registry.store.scan(table):
            call = self.registry.system_call("delete", resource, entry.namespace, entry.name)
            try:
                await self.registry.delete(call, DeleteOptions(propagation_policy="Background"))
            except StatusError as error:
                if error.code != 404:
                    raise

    async def _write_status(self, name: str, status: dict[str, Any]) -> None:
        await modify(self.registry, TABLE, "", name, lambda live: {**live, "status": status}, "status")


def _condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": timestamp(), "reason": reason, "message": message}


def _has(status: dict[str, Any], kind: str, value: str) -> bool:
    return any(c["type"] == kind and c["status"] == value for c in status.get("conditions") or [])


def with_condition(conditions: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Conditions with one replaced or added; its transition time moves only when its status does."""
    for i, old in enumerate(conditions):
        if old["type"] == new["type"]:
            same = old["status"] == new["status"]
            kept = {**new, "lastTransitionTime": old.get("lastTransitionTime")} if same else new
            return [*conditions[:i], kept, *conditions[i + 1 :]]
    return [*conditions, new]
