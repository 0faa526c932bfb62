"""Registry: Kubernetes semantics over the store. Both front ends, HTTP and in-process, enter here.

`authorize` authorizes every request once and returns the `Call` that all verbs take. The verbs know no kind by name:
the `Resource` declares special behaviour, or a handler for a subresource or review is registered.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from remuda.apiserver.auth.messages import forbidden
from remuda.apiserver.auth.user import Attributes, Authorizer, User
from remuda.apiserver.registry.admission import AdmissionChain
from remuda.apiserver.registry.calls import (
    Call,
    DeleteOptions,
    ListOptions,
    Page,
    PatchKind,
    WatchOptions,
    WriteOptions,
    Written,
)
from remuda.apiserver.registry.deletes import Deleter
from remuda.apiserver.registry.objects import decode, encode
from remuda.apiserver.registry.patches import apply_patch
from remuda.apiserver.registry.reads import ResourceReader
from remuda.apiserver.registry.scale import SCALE_SCHEMA, rescale, scale_of
from remuda.apiserver.registry.served import Served
from remuda.apiserver.registry.validation import complain, read_strictly, unfit
from remuda.apiserver.registry.watch import RegistryWatch
from remuda.apiserver.registry.writes import Guard, ResourceWriter
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.schema.walk import Structural
from remuda.apiserver.storage.protocol import Store
from remuda.kube.errors import StatusError, bad_request, method_not_supported, not_found
from remuda.kube.selectors import parse_field_selector

# Handles the create (or update) of a subresource or review: takes the object, returns the answer.
Handler = Callable[[Call, Obj, WriteOptions], Awaitable[Written]]
# Handles a GET of a subresource that is no object (pods/log): returns chunks of bytes.
Connector = Callable[[Call, Mapping[str, str]], AsyncIterator[bytes]]

_T = TypeVar("_T")


class Registry:
    def __init__(self, store: Store, served: Served, authorizer: Authorizer) -> None:
        self.store = store
        self.resources = served
        self.admission = AdmissionChain(store, served, authorizer)
        self.reader = ResourceReader(store, served)
        self._authorizer = authorizer
        self._writer = ResourceWriter(store, served, self.reader, self.admission, self._to_create)
        self._deleter = Deleter(store, self.reader, self.admission)
        self._handlers: dict[tuple[str, str], Handler] = {}
        self._connectors: dict[tuple[str, str], Connector] = {}
        self._bodies: dict[tuple[str, str], Structural] = {}

    # -- composition ----------------------------------------------------------------------------------------------

    def handle(self, table: str, subresource: str, handler: Handler) -> None:
        self._handlers[table, subresource] = handler

    def connect_with(self, table: str, subresource: str, connector: Connector) -> None:
        self._connectors[table, subresource] = connector

    def guard(self, table: str, guard: Guard) -> None:
        """Register a check that refuses writes beyond the caller's own permissions (RBAC escalation)."""
        self._writer.guards[table] = guard

    # -- authorization -------------------------------------------------------------------------------------------

    def authorize(
        self,
        user: User,
        verb: str,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str = "",
        *,
        field_selector: str = "",
    ) -> Call:
        asked_name = name
        if not name and field_selector:
            # As upstream: a list or watch of one name is authorised for that name, so that rules with resourceNames can
            # allow it.
            asked_name = parse_field_selector(field_selector).exact("metadata.name") or ""
        attributes = Attributes(
            verb=verb,
            group=resource.group,
            version=resource.version,
            resource=resource.plural,
            subresource=subresource,
            namespace=namespace,
            name=asked_name,
        )
        decision = self._authorizer.authorize(user, attributes)
        if not decision.allowed:
            raise forbidden(user, attributes, decision.reason)
        # A request for a namespace is authorized in that namespace, so that a Role in it can allow the request.
        return Call(user, verb, resource, namespace if resource.namespaced else "", name, subresource)

    def _to_create(self, call: Call) -> Call:
        # An apply or update of a missing object creates it, which needs another permission.
        created = self.authorize(call.user, "create", call.resource, call.namespace, call.name)
        created.warnings = call.warnings
        created.budget = call.budget
        return created

    # -- reads ---------------------------------------------------------------------------------------------------

    def get(self, call: Call, resource_version: str = "") -> bytes:
        if call.subresource == "scale" and call.resource.scale is not None:
            entry = self.store.get(call.resource.table, call.namespace, call.name)
            if entry is None:
                raise not_found(call.resource.group, call.resource.plural, call.name)
            return encode(scale_of(call.resource.scale, self.reader.object(call.resource, entry)))
        return self.reader.get(call, resource_version)

    def list(self, call: Call, options: ListOptions) -> Page:
        return self.reader.list(call, options)

    def watch(self, call: Call, options: WatchOptions) -> RegistryWatch:
        return self.reader.watch(call, options)

    def connect(self, call: Call, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        connector = self._connectors.get((call.resource.table, call.subresource))
        if connector is None:
            raise method_not_supported(call.resource.group, call.resource.plural, call.verb)
        return connector(call, query)

    # -- writes --------------------------------------------------------------------------------------------------

    async def create(self, call: Call, obj: Obj, options: WriteOptions) -> Written:
        handler = self._handlers.get((call.resource.table, call.subresource))
        if handler is not None:
            self._read_body(call, obj, options)
            return await self._answered(handler(call, obj, options))
        if call.subresource:
            raise method_not_supported(call.resource.group, call.resource.plural, "create")
        return await self._answered(self._writer.create(call, obj, options))

    async def _answered(self, write: Awaitable[_T]) -> _T:
        """Wait until the state that a refusal depends on is on disk. A write is decided on writes that may still be in
        flight: until they are on disk, readers do not see the reason of the refusal, and a crash would remove it.
        """
        try:
            return await write
        except StatusError:
            await self.store.settle()
            raise

    def _read_body(self, call: Call, obj: Obj, options: WriteOptions) -> None:
        declared = call.resource.subresources.get(call.subresource)
        if declared is None or declared.schema is None or declared.decodes:
            return
        key = (call.resource.table, call.subresource)
        structural = self._bodies.get(key)
        if structural is None:
            structural = self._bodies[key] = Structural(declared.schema, native=True, kind=declared.kind)
        refuse = partial(unfit, declared.version or call.resource.version, declared.kind)
        read_strictly(call, structural, obj, options.field_validation, refuse=refuse)

    async def update(self, call: Call, obj: Obj, options: WriteOptions) -> Written:
        handler = self._handlers.get((call.resource.table, call.subresource)) if call.subresource else None
        if handler is not None:
            return await self._answered(handler(call, obj, options))
        if call.subresource == "scale":
            return await self._answered(self._rescale(call, lambda _: obj, options))
        return await self._answered(self._writer.update(call, obj, options))

    async def patch(
        self, call: Call, kind: PatchKind, patch: Any, options: WriteOptions, complaints: Sequence[str] = ()
    ) -> Written:
        if call.subresource == "scale":
            merge = "merge" if kind == "apply" else kind
            complain(call, complaints, options.field_validation, bad_request)
            rescaled = self._rescale(call, lambda scale: apply_patch(merge, scale, patch, SCALE_SCHEMA), options)
            return await self._answered(rescaled)
        return await self._answered(self._writer.patch(call, kind, patch, options, complaints))

    async def _rescale(self, call: Call, change: Callable[[Obj], Obj], options: WriteOptions) -> Written:
        paths = call.resource.scale
        assert paths is not None
        written = await self._writer.modify(
            call, lambda live: rescale(call, live, change(scale_of(paths, live))), options
        )
        scale = scale_of(paths, decode(written.value))
        return Written(encode(scale))

    async def modify(
        self, call: Call, change: Callable[[Obj], Obj], options: WriteOptions, *, own: bool = True
    ) -> Written:
        """Read, change and write an object, in process. `change` must return a new object and not change its argument.

        Without `own`, no manager owns the changed fields.
        """
        return await self._answered(self._writer.modify(call, change, options, own=own))

    async def delete(self, call: Call, options: DeleteOptions) -> Written:
        return await self._answered(self._deleter.delete(call, options))

    async def delete_collection(self, call: Call, selection: ListOptions, options: DeleteOptions) -> Page:
        return await self._answered(self._deleter.delete_collection(call, selection, options))

    # -- for upkeep ----------------------------------------------------------------------------------------------

    def system_call(self, verb: str, resource: Resource, namespace: str, name: str, subresource: str = "") -> Call:
        """Return a call by the server itself, which needs no authorization."""
        return Call(SYSTEM, verb, resource, namespace, name, subresource)

    def read(self, table: str, namespace: str, name: str) -> Obj | None:
        entry = self.store.get(table, namespace, name)
        return decode(entry.value) if entry is not None else None


SYSTEM = User("system:apiserver", groups=("system:masters", "system:authenticated"))


def answer(obj: Any, *, created: bool = True) -> Written:
    """Return an object that is not stored as the answer to a review or a subresource."""
    return Written(msgspec.json.encode(obj), created=created)
