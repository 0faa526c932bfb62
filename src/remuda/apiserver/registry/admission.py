"""Admission chain: in-process functions that the embedding application registers.

It runs after defaults and preparation and before validation, so that patches by its functions are validated too. The
chain is awaited: functions may call webhooks over the network. The author's permissions for a write are checked before
its function is called, so that a denied user learns nothing from the function's warnings.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.apiserver.auth.user import MANAGER, MASTERS, Attributes, Authorizer
from remuda.apiserver.registry.calls import Call, WriteOptions
from remuda.apiserver.registry.objects import decode, metadata
from remuda.apiserver.registry.served import Served
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.storage.protocol import Store
from remuda.kube.admission import EVERY_KIND, AdmissionFunction, AdmissionRegistration, Needs, Operation, Review
from remuda.kube.authorization import RequiredAccess, denial
from remuda.kube.errors import forbidden_request, invalid_object
from remuda.kube.patches import apply_merge_patch
from remuda.kube.selectors import label_selector_from_labels

_EVERY_OPERATION: tuple[Operation, ...] = ("CREATE", "UPDATE", "DELETE")


class AdmissionChain:
    def __init__(self, store: Store, served: Served, authorizer: Authorizer) -> None:
        self._store = store
        self._served = served
        self._authorizer = authorizer
        self._registered: dict[tuple[str, str], list[AdmissionRegistration]] = {}

    def register(
        self,
        group: str,
        plural: str,
        function: AdmissionFunction,
        operations: tuple[Operation, ...] = _EVERY_OPERATION,
        needs: Needs | None = None,
    ) -> None:
        """Call `function` for every write of a resource, in the order of registration; functions for all kinds of a
        group run last.
        """
        registration = AdmissionRegistration(group, plural, function, operations, needs)
        self._registered.setdefault((group, plural), []).append(registration)

    async def admit(
        self, call: Call, operation: Operation, new: Obj | None, old: Obj | None, options: WriteOptions
    ) -> Obj | None:
        """Return the object after all functions. Raise their refusals."""
        resource = call.resource
        for registration in self._concerned(resource.group, resource.plural):
            if operation not in registration.operations:
                continue
            review = Review(
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
                uid=call.user.uid,
                extra=call.user.extra,
                # The group is required as well: a user who may impersonate the name must not pass for the manager.
                by_manager=call.user.name == MANAGER and MASTERS in call.user.groups,
                old=old,
                new=new,
                dry_run=options.dry_run,
                lookup=self.lookup,
                select=self.select,
            )
            # The user's permissions count, not those of the manager, which later uses the referenced objects with its
            # own.
            for access in registration.needs(review) if registration.needs is not None else ():
                if not self._permits(call, access):
                    raise forbidden_request(resource.group, resource.plural, call.name, denial(access))
            verdict = registration.function(review)
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
        """Return whether any function is called for writes of a resource."""
        return bool(self._concerned(resource.group, resource.plural))

    def _concerned(self, group: str, plural: str) -> list[AdmissionRegistration]:
        return [*self._registered.get((group, plural), ()), *self._registered.get((group, EVERY_KIND), ())]

    def _permits(self, call: Call, access: RequiredAccess) -> bool:
        attributes = Attributes(
            verb=access.verb,
            group=access.group,
            resource=access.resource,
            namespace=access.namespace,
            name=access.name,
        )
        return self._authorizer.authorize(call.user, attributes).allowed

    def select(self, api_version: str, plural: str, namespace: str, labels: Mapping[str, str]) -> list[Obj]:
        group, _, version = api_version.rpartition("/")
        resource = self._served.find(group, version, plural)
        if resource is None:
            return []
        selector = label_selector_from_labels(labels)
        # Writes in flight are included, so that a limit that a function checks also holds for concurrent writes.
        found = self._store.scan_latest(resource.table, namespace)
        return [decode(entry.value) for entry in found if selector.matches(entry.labels)]

    def lookup(self, api_version: str, plural: str, namespace: str, name: str) -> Obj | None:
        group, _, version = api_version.rpartition("/")
        resource = self._served.find(group, version, plural)
        if resource is None:
            return None
        entry = self._store.get(resource.table, namespace, name)
        return decode(entry.value) if entry is not None else None
