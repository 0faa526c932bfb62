"""The admission chain: in-process functions registered by whoever embeds the server.

Runs after defaults and preparation, before validation, so that what a function patches is validated like everything
else. The chain is awaited: webhooks called over the network take the same place.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.apiserver.registry.calls import Call, WriteOptions
from remuda.apiserver.registry.objects import decode, metadata
from remuda.apiserver.registry.served import Served
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.storage.protocol import Store
from remuda.kube.admission import EVERY_KIND, AdmissionFunction, Operation, Review
from remuda.kube.errors import forbidden_request, invalid_object
from remuda.kube.patches import apply_merge_patch
from remuda.kube.selectors import label_selector_from_labels

_EVERY_OPERATION: tuple[Operation, ...] = ("CREATE", "UPDATE", "DELETE")


class AdmissionChain:
    def __init__(self, store: Store, served: Served) -> None:
        self._store = store
        self._served = served
        self._functions: dict[tuple[str, str], list[tuple[AdmissionFunction, tuple[Operation, ...]]]] = {}

    def register(
        self,
        group: str,
        plural: str,
        function: AdmissionFunction,
        operations: tuple[Operation, ...] = _EVERY_OPERATION,
    ) -> None:
        """Calls `function` for every write of a resource, in the order of registration; those for every kind of a
        group come last."""
        self._functions.setdefault((group, plural), []).append((function, operations))

    async def admit(
        self, call: Call, operation: Operation, new: Obj | None, old: Obj | None, options: WriteOptions
    ) -> Obj | None:
        """The object as the functions want it. Raises what they refuse."""
        resource = call.resource
        for function, operations in self._concerned(resource.group, resource.plural):
            if operation not in operations:
                continue
            verdict = function(
                Review(
                    operation=operation,
                    group=resource.group,
                    version=resource.version,
                    kind=resource.kind,
                    resource=resource.plural,
                    subresource=call.subresource,
                    namespace=call.namespace,
                    name=call.name or (metadata(new).get("name", "") if new else ""),
                    user=call.user.name,
                    groups=call.user.groups,
                    old=old,
                    new=new,
                    dry_run=options.dry_run,
                    lookup=self.lookup,
                    select=self.select,
                )
            )
            call.warnings.extend(verdict.warnings)
            if verdict.denied:
                raise forbidden_request(resource.group, resource.plural, call.name, verdict.denied)
            if verdict.errors:
                name = metadata(new or old or {}).get("name", call.name)
                raise invalid_object(resource.group_in_complaints, resource.kind, name, list(verdict.errors))
            if verdict.patch is not None and new is not None:
                new = apply_merge_patch(new, verdict.patch)
        return new

    def concerns(self, resource: Resource) -> bool:
        """Whether any function is called for it."""
        return bool(self._concerned(resource.group, resource.plural))

    def _concerned(self, group: str, plural: str) -> list[tuple[AdmissionFunction, tuple[Operation, ...]]]:
        return [*self._functions.get((group, plural), ()), *self._functions.get((group, EVERY_KIND), ())]

    def select(self, api_version: str, plural: str, namespace: str, labels: Mapping[str, str]) -> list[Obj]:
        group, _, version = api_version.rpartition("/")
        resource = self._served.find(group, version, plural)
        if resource is None:
            return []
        selector = label_selector_from_labels(labels)
        found = (decode(entry.value) for entry in self._store.scan(resource.table, namespace))
        return [obj for obj in found if selector.matches(metadata(obj).get("labels") or {})]

    def lookup(self, api_version: str, plural: str, namespace: str, name: str) -> Obj | None:
        group, _, version = api_version.rpartition("/")
        resource = self._served.find(group, version, plural)
        if resource is None:
            return None
        entry = self._store.get(resource.table, namespace, name)
        return decode(entry.value) if entry is not None else None
