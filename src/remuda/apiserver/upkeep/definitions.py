"""CustomResourceDefinitions: accepts names, establishes definitions, and deletes their objects before they are deleted.

A definition becomes Established as soon as its names are free in its group, and stays so. A definition that is being
deleted waits, held by a finalizer, until its last object is deleted. What must stay true: two definitions never have
the same name. So names are reserved when they are accepted, before the write of the condition is on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.apiserver.registry.calls import DeleteOptions, ListOptions
from remuda.apiserver.registry.crds import CLEANUP, TABLE, accept_names, is_established, stored_resource
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.resource import Obj
from remuda.apiserver.storage.types import StoreEntry, StoreEvent
from remuda.apiserver.upkeep.duty import Condition, KeyedDuty, condition, modify, with_conditions


class _Status(msgspec.Struct):
    accepted: dict[str, Any] | None = msgspec.field(default=None, name="acceptedNames")


class _Spec(msgspec.Struct):
    group: str = ""


class _Named(msgspec.Struct):
    """Names in a definition that other definitions need to know, decoded without its schemas."""

    spec: _Spec
    status: _Status | None = None


_decode_named = msgspec.json.Decoder(_Named).decode


class DefinitionsDuty(KeyedDuty):
    def __init__(self, registry: Registry) -> None:
        super().__init__("definitions", registry, self._reconcile)
        self._names: dict[str, tuple[str, dict[str, Any]]] = {}  # definition -> group, accepted names
        self._refused: dict[str, str] = {}  # definition that waits for names -> group
        self._emptying: dict[str, str] = {}  # table of instances -> name of a definition being deleted

    async def start(self) -> None:
        for entry in self.registry.store.intact(TABLE):
            self._note_names(entry)
            self.worker.add((entry.name,))

    def observe(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            entry = event.entry
            if entry.table == TABLE:
                self._observe_definition(entry, event.type == "DELETED")
            elif (
                event.type == "DELETED" and entry.table in self._emptying and not self.registry.store.count(entry.table)
            ):
                self.worker.add((self._emptying[entry.table],))

    def _observe_definition(self, entry: StoreEntry, is_gone: bool) -> None:
        """Record a changed definition. Another definition may wait for a name that it releases."""
        group, before = self._names.pop(entry.name, ("", {}))
        if not is_gone:
            self._note_names(entry)
            self.worker.add((entry.name,))
        else:
            self._refused.pop(entry.name, None)
            self._emptying = {table: name for table, name in self._emptying.items() if name != entry.name}
        if before and self._names.get(entry.name) != (group, before):
            self._try_refused(group)

    def _try_refused(self, group: str) -> None:
        for name, other in self._refused.items():
            if other == group:
                self.worker.add((name,))

    def _note_names(self, entry: StoreEntry) -> None:
        named = _decode_named(entry.value)
        self._names[entry.name] = (named.spec.group, (named.status and named.status.accepted) or {})

    async def _reconcile(self, key: tuple[str]) -> None:
        crd = self.registry.read(TABLE, "", key[0])
        if crd is None:
            return
        if "deletionTimestamp" in crd["metadata"]:
            await self._empty(crd)
        else:
            await self._establish(crd)

    # -- names ---------------------------------------------------------------------------------------------------

    async def _establish(self, crd: Obj) -> None:
        name, group = crd["metadata"]["name"], crd["spec"]["group"]
        before = self._names.get(name, (group, {}))
        taken = [names for other, (of, names) in self._names.items() if of == group and other != name]
        accepted, refused = accept_names(crd["spec"]["names"], before[1], taken)
        # Before the write is awaited: another definition that is checked meanwhile must not get the same names.
        self._names[name] = (group, accepted)
        if refused:
            self._refused[name] = group
        else:
            self._refused.pop(name, None)
        try:
            await self._report(name, _about_names(refused, is_established(crd)), accepted)
        except BaseException:
            # The write failed: release the names.
            self._names[name] = before
            raise
        if before[1] and before[1] != accepted:
            self._try_refused(group)

    async def _report(self, name: str, found: Sequence[Condition], accepted: dict[str, Any] | None = None) -> None:
        def reported(live: Obj) -> Obj:
            status = dict(live.get("status") or {})
            status["conditions"] = with_conditions(status.get("conditions") or (), found)
            if accepted is not None:
                status["acceptedNames"] = accepted
            return {**live, "metadata": dict(live["metadata"]), "status": status}

        await modify(self.registry, TABLE, "", name, reported, "status")

    # -- deletion ------------------------------------------------------------------------------------------------

    async def _empty(self, crd: Obj) -> None:
        if CLEANUP not in (crd["metadata"].get("finalizers") or ()):
            return
        name = crd["metadata"]["name"]
        in_progress = ("InstanceDeletionInProgress", "CustomResource deletion is in progress")
        await self._report(name, [condition("Terminating", "True", *in_progress)])
        if is_established(crd):
            table = f"{crd['spec']['names']['plural']}.{crd['spec']['group']}"
            resource = self.registry.resources.of_table(table) or stored_resource(crd)
            self._emptying[table] = name
            call = self.registry.system_call("deletecollection", resource, "", "")
            await self.registry.delete_collection(call, ListOptions(), DeleteOptions())
            if self.registry.store.count(table):
                return  # objects with finalizers remain; the last DELETED event triggers this again
        await modify(self.registry, TABLE, "", name, _released)


def _about_names(refused: tuple[str, str] | None, established: bool) -> list[Condition]:
    if refused is None:
        names = condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
    else:
        names = condition("NamesAccepted", "False", *refused)
    if established:
        return [names]  # once served, a definition keeps its names
    if refused is None:
        message = "the initial names have been accepted"
        return [names, condition("Established", "True", "InitialNamesAccepted", message)]
    return [names, condition("Established", "False", "NotAccepted", "not all names are accepted")]


def _released(live: Obj) -> Obj:
    metadata = dict(live["metadata"])
    metadata["finalizers"] = [f for f in metadata.get("finalizers") or () if f != CLEANUP]
    if not metadata["finalizers"]:
        del metadata["finalizers"]
    return {**live, "metadata": metadata}
