"""Create, update and patch. Every write of every kind takes the same steps, in the real server's order:

    identify → decode (prune, default) → own fields → prepare → admit → validate → check quotas → encode → disk

A write that would change nothing is not written: no new revision, no event. An update that removes the last
finalizer of an object being deleted removes the object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from remuda.apiserver.apply import managed
from remuda.apiserver.registry.admission import AdmissionChain
from remuda.apiserver.registry.calls import Call, PatchKind, WriteOptions, Written
from remuda.apiserver.registry.deletes import is_held
from remuda.apiserver.registry.identity import check_namespace_open, identify, require_identity
from remuda.apiserver.registry.objects import (
    decode,
    encode,
    encode_at,
    metadata,
    new_uid,
    to_storage,
)
from remuda.apiserver.registry.patches import patched
from remuda.apiserver.registry.quotas import check_quotas
from remuda.apiserver.registry.reads import ResourceReader
from remuda.apiserver.registry.served import Served
from remuda.apiserver.registry.status_isolation import forget_status, keep_other_side, unchangeable_fields
from remuda.apiserver.registry.validation import complain, decode_strictly, drop_repeated_owners, validate
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.schema.walk import Structural
from remuda.apiserver.storage.protocol import Store
from remuda.apiserver.storage.types import StoreEntry, WriteConflict
from remuda.kube import clock
from remuda.kube.admission import Operation
from remuda.kube.errors import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden_request,
    invalid,
    invalid_object,
    not_found,
)
from remuda.kube.names import generate_name
from remuda.kube.patches.json_copy import same_json

# How often a write is repeated if another write came in while admission was awaited.
_ATTEMPTS = 8

Change = Callable[[Obj], Obj]
# (caller, new, old or None) -> raises an error for forbidden writes, such as privilege escalation
Guard = Callable[[Call, Obj, Obj | None], None]
# returns the caller's Call to create an object that an apply or update did not find; raises if not allowed
ToCreate = Callable[[Call], Call]


class ResourceWriter:
    def __init__(
        self, store: Store, served: Served, reader: ResourceReader, admission: AdmissionChain, to_create: ToCreate
    ) -> None:
        self._store = store
        self._to_create = to_create
        self._served = served
        self._reader = reader
        self._admission = admission
        self.guards: dict[str, Guard] = {}

    # -- create ---------------------------------------------------------------------------------------------------

    async def create(self, call: Call, obj: Obj, options: WriteOptions) -> Written:
        identify(call, obj)
        generated = not metadata(obj).get("name") and bool(metadata(obj).get("generateName"))
        for attempt in range(_ATTEMPTS):
            if generated:
                metadata(obj)["name"] = generate_name(metadata(obj)["generateName"])
            try:
                # Each attempt gets a copy, because the steps of a create change the object.
                return await self._create(call, dict(obj, metadata=dict(metadata(obj))), options)
            except WriteConflict:
                if generated and attempt + 1 < _ATTEMPTS:
                    continue
                resource = call.resource
                raise already_exists(resource.group, resource.plural, metadata(obj).get("name", "")) from None
        raise AssertionError("unreachable")

    async def _create(self, call: Call, obj: Obj, options: WriteOptions) -> Written:
        resource = call.resource
        empty = _given_empty(resource, obj)
        self._decode(call, obj, options)
        meta = metadata(obj)
        if meta.get("resourceVersion"):
            # Upstream answers this with a plain error too: code 500, no reason.
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        self._begin(resource, call, obj)
        drop_repeated_owners(call, obj)
        managed.on_update(
            None,
            {**obj, **empty} if empty else obj,
            schema=resource.schema,
            manager=options.field_manager,
            api_version=resource.api_version,
            subresource="",
            now=clock.now(),
            reset=unchangeable_fields(resource, ""),
            blank=resource.blank,
        )
        return await self._finish_create(call, obj, options)

    def _begin(self, resource: Resource, call: Call, obj: Obj) -> None:
        """Set the metadata of a new object that only the server may set."""
        meta = metadata(obj)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            meta.pop(field, None)
        if resource.namespaced:
            meta["namespace"] = call.namespace
        else:
            meta.pop("namespace", None)
        meta["uid"] = new_uid()
        meta["creationTimestamp"] = clock.now()
        if resource.has_generation:
            meta["generation"] = 1

    async def _finish_create(self, call: Call, obj: Obj, options: WriteOptions) -> Written:
        resource = call.resource
        check_namespace_open(self._store, call, metadata(obj).get("name", ""))
        if resource.closed:
            raise forbidden_request(resource.group, resource.plural, metadata(obj).get("name", ""), resource.closed)
        if resource.has_status and not resource.keeps_status_on_create and forget_status(resource, obj):
            call.schema_checked = False
        resource.behaviour.prepare_create(obj)
        obj = await self._admitted(call, "CREATE", obj, None, options)
        # After admission, which may change the object: the caller needs the permissions for the stored object.
        self._guard(call, obj, None)
        structural = self._served.shape(resource).structural
        await _validated(call, structural, obj, None)
        name = metadata(obj)["name"]
        if self._store.latest(resource.table, call.namespace, name) is not None:
            raise WriteConflict
        check_quotas(self._store, resource, call.namespace, name)  # no await from here to the write
        if options.dry_run:
            return Written(encode(obj), created=True)
        stored = to_storage(resource, obj)
        entry = await self._store.put(
            resource.table, call.namespace, name, lambda revision: encode_at(stored, revision), expect=None
        )
        structural.remember(entry.revision)
        return Written(self._reader.render(resource, entry), created=True)

    async def _admitted(
        self, call: Call, operation: Operation, new: Obj, old: Obj | None, options: WriteOptions
    ) -> Obj:
        resource = call.resource
        if resource.custom and not call.schema_checked and self._admission.concerns(resource):
            # Before validation, because an admission function may look up, or compare, each element of a list.
            large = self._served.shape(resource).structural.size_errors(new, old)
            if large:
                name = metadata(new).get("name", "")
                raise invalid_object(resource.group_in_complaints, resource.kind, name, large)
        admitted = await self._admission.admit(call, operation, new, old, options)
        assert admitted is not None
        if admitted is not new:
            call.schema_checked = False
        return admitted

    def _guard(self, call: Call, new: Obj, old: Obj | None) -> None:
        guard = self.guards.get(call.resource.table)
        if guard is not None:
            guard(call, new, old)

    # -- update and patch -----------------------------------------------------------------------------------------

    async def update(self, call: Call, obj: Obj, options: WriteOptions) -> Written:
        identify(call, obj)
        self._decode(call, obj, options)
        require_identity(call, obj)
        resource = call.resource
        meta = metadata(obj)

        def change(live: Obj) -> Obj:
            uid, stored = meta.get("uid"), metadata(live)["uid"]
            if uid and uid != stored:
                why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored}"
                raise conflict(resource.group, resource.plural, call.name, why)
            if not meta.get("resourceVersion") and not resource.allow_unconditional_update:
                unconditional = invalid("metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid_object(resource.group, resource.plural, call.name, [unconditional])
            return dict(obj, metadata=dict(meta))

        async def missing() -> Written:
            return await self.create(self._to_create(call), obj, options)

        creatable = resource.allow_create_on_update and not call.subresource
        return await self._modify(call, change, options, own=True, missing=missing if creatable else None)

    async def patch(
        self, call: Call, kind: PatchKind, patch: Any, options: WriteOptions, complaints: Sequence[str] = ()
    ) -> Written:
        if kind == "apply":
            return await self._apply(call, patch, options, complaints)
        structural = self._served.shape(call.resource).structural

        def change(live: Obj) -> Obj:
            return patched(call, kind, live, patch, structural, options, complaints)

        return await self._modify(call, change, options, own=True)

    async def _apply(self, call: Call, config: Obj, options: WriteOptions, complaints: Sequence[str]) -> Written:
        resource = call.resource

        def merged(live: Obj | None) -> Obj:
            new = managed.apply(
                live,
                config,
                schema=resource.schema,
                manager=options.field_manager,
                force=options.force,
                api_version=resource.api_version,
                kind=resource.kind,
                subresource=call.subresource,
                now=clock.now(),
                reset=unchangeable_fields(resource, call.subresource),
                blank=resource.blank,
            )
            self._decode(call, new, options)
            complain(call, complaints, options.field_validation, _unfit_yaml)
            require_identity(call, new)
            return new

        async def missing() -> Written:
            if call.subresource:
                raise not_found(resource.group, resource.plural, call.name)
            obj = merged(None)
            meta = metadata(obj)
            if meta.get("uid"):
                raise conflict(
                    resource.group,
                    resource.plural,
                    call.name,
                    f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found",
                )
            creating = self._to_create(call)
            self._begin(resource, call, obj)
            try:
                return await self._finish_create(creating, obj, options)
            except WriteConflict:
                raise already_exists(resource.group, resource.plural, call.name) from None

        return await self._modify(call, merged, options, own=False, missing=missing)

    async def modify(self, call: Call, change: Change, options: WriteOptions, *, own: bool = True) -> Written:
        def decoded(live: Obj) -> Obj:
            new = change(live)
            self._decode(call, new, options)
            return new

        return await self._modify(call, decoded, options, own=own)

    def _decode(self, call: Call, obj: Obj, options: WriteOptions) -> None:
        decode_strictly(call, self._served.shape(call.resource).structural, obj, options.field_validation)

    async def _modify(
        self,
        call: Call,
        change: Change,
        options: WriteOptions,
        *,
        own: bool,
        missing: Callable[[], Any] | None = None,
    ) -> Written:
        """Read, change and write; repeat if another write came in while admission was awaited. `change` returns a
        decoded object.
        """
        resource = call.resource
        for _ in range(_ATTEMPTS):
            # Not the committed state: a write in flight would make this one conflict.
            entry = self._store.latest(resource.table, call.namespace, call.name)
            if entry is None:
                if missing is not None:
                    written: Written = await missing()
                    return written
                raise not_found(resource.group, resource.plural, call.name)
            try:
                return await self._modify_once(call, entry, change, options, own=own)
            except WriteConflict:
                continue
        raise conflict(resource.group, resource.plural, call.name)

    async def _modify_once(
        self, call: Call, entry: StoreEntry, change: Change, options: WriteOptions, *, own: bool
    ) -> Written:
        resource = call.resource
        live = self._reader.object(resource, entry)
        new = change(live)
        if call.verb == "patch":
            call.budget.charge_result(new, len(entry.value))
        self._check_same_object(call, new, live)
        if keep_other_side(resource, call.subresource, new, live):
            call.schema_checked = False
        drop_repeated_owners(call, new)
        if own:
            managed.on_update(
                live,
                new,
                schema=resource.schema,
                manager=options.field_manager,
                api_version=resource.api_version,
                subresource=call.subresource,
                now=clock.now(),
                reset=unchangeable_fields(resource, call.subresource),
                blank=resource.blank,
            )
        self._carry_over(resource, new, live)
        if not call.subresource:
            resource.behaviour.prepare_update(new, live)
        if resource.has_generation and changes_generation(resource, new, live):
            metadata(new)["generation"] = metadata(live).get("generation", 0) + 1
        new = await self._admitted(call, "UPDATE", new, live, options)
        self._guard(call, new, live)
        structural = self._served.shape(resource).structural
        keeps_rules = await _validated(call, structural, new, live)
        managed.keep_times(live, new)
        if same_json(new, live):
            # The answer shows `entry`, which may not be on disk yet: a crash would undo what the client has seen.
            await self._store.settle(entry.revision)
            return Written(self._reader.render(resource, entry))
        if options.dry_run:
            return Written(encode(new))
        return await self._store_modified(call, entry, new, structural if keeps_rules else None)

    async def _store_modified(self, call: Call, entry: StoreEntry, new: Obj, kept: Structural | None) -> Written:
        """Store a modified object. `kept`: the schema, if the object breaks none of its rules."""
        resource = call.resource
        meta = metadata(new)
        stored = to_storage(resource, new)
        key = (resource.table, entry.namespace, entry.name)
        if meta.get("deletionTimestamp") and not meta.get("deletionGracePeriodSeconds") and not is_held(resource, new):
            # The last event shows the last stored state; the answer shows the state after the caller's change.
            last = decode(entry.value)
            await self._store.delete(*key, lambda revision: encode_at(last, revision), expect=entry)
            return Written(encode(new))
        written = await self._store.put(*key, lambda revision: encode_at(stored, revision), expect=entry)
        if kept is not None:
            kept.remember(written.revision, entry.revision)
        return Written(self._reader.render(resource, written))

    def _check_same_object(self, call: Call, new: Obj, live: Obj) -> None:
        """Check optimistic concurrency: a resourceVersion in the body must be the stored one."""
        resource, meta, stored = call.resource, metadata(new), metadata(live)
        version = meta.get("resourceVersion")
        if version and not (version.isascii() and version.isdigit()):
            raise StatusError(500, "", f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if version and version != stored["resourceVersion"]:
            raise conflict(resource.group, resource.plural, call.name)
        meta["resourceVersion"] = stored["resourceVersion"]

    def _carry_over(self, resource: Resource, new: Obj, live: Obj) -> None:
        """Carry over metadata that an update cannot change. Fields that the server maintains stay in any case; other
        fields stay if the body omits them, and validation rejects differences.
        """
        meta, stored = metadata(new), metadata(live)
        for field in ("creationTimestamp", "deletionTimestamp"):
            if field in stored:
                meta[field] = stored[field]
        for field in ("uid", "deletionGracePeriodSeconds"):
            if field in stored and not meta.get(field):
                meta[field] = stored[field]
        if "generation" in stored:
            meta["generation"] = stored["generation"]
        else:
            meta.pop("generation", None)
        meta.pop("selfLink", None)


async def _validated(call: Call, structural: Structural, new: Obj, old: Obj | None) -> bool:
    """Validate, in a thread if it takes long, so that other requests are not delayed."""
    if call.resource.behaviour.is_slow(new):
        return await asyncio.to_thread(validate, call, structural, new, old)
    return validate(call, structural, new, old)


def _unfit_yaml(problem: str) -> StatusError:
    return bad_request(f"error strict decoding YAML: {problem.removeprefix('strict decoding error: ')}")


def _given_empty(resource: Resource, obj: Obj) -> Obj:
    """Return the lists that a kind stores as null when empty: a client that sends an empty list owns it
    nevertheless.
    """
    return {name: [] for name, blank in (resource.blank or {}).items() if blank is None and obj.get(name) == []}


def changes_generation(resource: Resource, new: Obj, live: Obj) -> bool:
    """Return whether the desired state changed: anything outside metadata and, where it is a subresource, status."""
    aside = ("metadata", "status") if resource.has_status or not resource.custom else ("metadata",)
    return any(new.get(key, ...) != live.get(key, ...) for key in {*new, *live} if key not in aside)
