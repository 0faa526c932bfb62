"""Get, list and watch: served from memory, in the requested version.

Stored bytes go to the wire unchanged unless the version differs, or the object was written before its custom schema
last changed: then it is shown pruned and defaulted by the schema of today, as if it had just been written.

The continue token of a paged list holds the revision of the first page and the last key returned. It is opaque to
clients. Revision 0 marks the token offered with a 410: the rest of the list as it is now, no longer consistent with the
first pages.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Literal

import msgspec

from remuda.apiserver.registry.calls import Call, ListOptions, Page, WatchOptions
from remuda.apiserver.registry.objects import decode, encode, from_storage, is_stored_as_served
from remuda.apiserver.registry.selection import Selection
from remuda.apiserver.registry.served import Served
from remuda.apiserver.registry.watch import RegistryWatch
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.storage.protocol import Store
from remuda.apiserver.storage.types import Compacted, Revision, StoreEntry
from remuda.kube.errors import StatusError, bad_request, gone, invalid, not_found, too_large_revision
from remuda.kube.malformed_json import json_complaint

_STALE_PAGE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def parse_revision(text: str, *, refusal: int = 500) -> Revision:
    """Parse a resourceVersion parameter; empty counts as 0. For an invalid one, kube-apiserver answers 500, in lists
    400.
    """
    if not text:
        return Revision(0)
    digits = text.lstrip("0") if text.isascii() and text.isdigit() else None
    if digits is not None and len(digits) <= 20 and int(text[-20:]) < 1 << 64:
        return Revision(int(text[-20:]))
    fault = "invalid syntax" if digits is None else "value out of range"
    complaint = invalid("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": {fault}')
    if refusal == 400:
        raise bad_request(f"invalid resource version: {complaint}")
    raise StatusError(500, "", str(complaint))


class Continuation(msgspec.Struct, frozen=True):
    """Continue token of a paged list."""

    revision: int = msgspec.field(name="rv")
    namespace: str = msgspec.field(name="ns")
    name: str
    version: str = msgspec.field(name="v", default="meta.k8s.io/v1")

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)


def parse_continuation(token: str) -> Continuation:
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except ValueError as error:  # not base64, or not ASCII
        raise _invalid_token(str(error)) from None
    try:
        found = msgspec.json.decode(raw, type=Continuation)
    except (ValueError, msgspec.MsgspecError) as error:
        raise _invalid_token(json_complaint(raw, str(error))) from None
    if found.version != "meta.k8s.io/v1" or found.revision < 0:
        why = f'server does not recognize this encoded version "{found.version}"'
        raise _invalid_token(why)
    return found


def _invalid_token(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


class ResourceReader:
    def __init__(self, store: Store, served: Served) -> None:
        self._store = store
        self._served = served
        self._refreshed: dict[tuple[Resource, str, str], tuple[Revision, bytes]] = {}

    def object(self, resource: Resource, entry: StoreEntry) -> Obj:
        """Decode an entry, in the version of `resource` and with its current schema."""
        obj = from_storage(resource, decode(entry.value))
        if resource.custom and entry.revision < self._served.shape(resource).since:
            structural = self._served.shape(resource).structural
            structural.prune(obj)
            structural.default(obj)
        return obj

    def render(self, resource: Resource, entry: StoreEntry) -> bytes:
        since = self._as_stored_since(resource)
        if since is not None and entry.revision >= since:
            return entry.value
        return self._render_converted(resource, entry)

    def _render_all(self, resource: Resource, entries: Sequence[StoreEntry]) -> list[bytes]:
        """Render the entries of a list.

        The check that is the same for all entries runs once, so a list of stored bytes costs next to nothing per item.
        """
        since = self._as_stored_since(resource)
        if since is None:
            return [self._render_converted(resource, entry) for entry in entries]
        return [
            entry.value if entry.revision >= since else self._render_converted(resource, entry) for entry in entries
        ]

    def _as_stored_since(self, resource: Resource) -> int | None:
        """Return the revision from which on stored bytes can be shown unchanged; None: never."""
        if not is_stored_as_served(resource):
            return None
        return self._served.shape(resource).since if resource.custom else 0

    def _render_converted(self, resource: Resource, entry: StoreEntry) -> bytes:
        key = (resource, entry.namespace, entry.name)
        cached = self._refreshed.get(key)
        if cached is not None and cached[0] == entry.revision:
            return cached[1]
        value = encode(self.object(resource, entry))
        if len(self._refreshed) >= 4096:  # only limits memory: converted reads are rare
            self._refreshed.clear()
        self._refreshed[key] = (entry.revision, value)
        return value

    def get(self, call: Call, resource_version: str) -> bytes:
        self._require_reached(parse_revision(resource_version))
        resource = call.resource
        entry = self._store.get(resource.table, call.namespace, call.name)
        if entry is None:
            raise not_found(resource.group, resource.plural, call.name)
        return self.render(resource, entry)

    def list(self, call: Call, options: ListOptions) -> Page:
        resource = call.resource
        selection = Selection(resource, call.namespace, options.label_selector, options.field_selector, call.budget)
        if options.continue_token:
            return self._next_page(resource, selection, options)
        asked = parse_revision(options.resource_version, refusal=400)
        self._require_reached(asked)
        exact = options.resource_version_match == "Exact" or (
            asked > 0 and options.limit > 0 and not options.resource_version_match
        )
        # As upstream: a list of any state (revision 0) comes from the watch cache, which ignores the limit.
        limit = 0 if options.resource_version == "0" else options.limit
        try:
            entries = self._entries(resource, selection, None, asked if exact else None)
        except Compacted:
            raise gone("The resourceVersion for the provided list is too old.") from None
        return self._page(resource, selection, entries, limit, asked if exact else self._store.revision)

    def _next_page(self, resource: Resource, selection: Selection, options: ListOptions) -> Page:
        if options.resource_version and options.resource_version != "0":
            raise bad_request("specifying resource version is not allowed when using continue")
        token = parse_continuation(options.continue_token)
        if token.revision == 0:
            entries = self._entries(resource, selection, token.key, None)
            return self._page(resource, selection, entries, options.limit, self._store.revision)
        revision = Revision(token.revision)
        self._require_reached(revision)
        try:
            entries = self._entries(resource, selection, token.key, revision)
        except Compacted:
            # As upstream: with this token a client can continue behind the last key, at the present revision.
            rest = Continuation(0, token.namespace, token.name)
            raise gone(_STALE_PAGE, continue_token=rest.encode()) from None
        return self._page(resource, selection, entries, options.limit, revision)

    def _entries(
        self, resource: Resource, selection: Selection, after: tuple[str, str] | None, at: Revision | None
    ) -> Sequence[StoreEntry]:
        """Return the entries that may be in the list, in order. A requested name is looked up, not scanned for."""
        if selection.name and selection.namespace and at is None and after is None:
            entry = self._store.get(resource.table, selection.namespace, selection.name)
            return [entry] if entry is not None else []
        return self._store.scan(resource.table, selection.namespace, after=after, at=at)

    def _page(
        self, resource: Resource, selection: Selection, entries: Sequence[StoreEntry], limit: int, revision: Revision
    ) -> Page:
        shown, left = _cut(entries, limit) if selection.is_everything else _pick(selection, entries, limit)
        token = Continuation(revision, *shown[-1].key).encode() if left else ""
        remaining = left if left and selection.is_everything else None
        return Page(self._render_all(resource, shown), revision, token, remaining)

    def watch(self, call: Call, options: WatchOptions) -> RegistryWatch:
        resource = call.resource
        selection = Selection(resource, call.namespace, options.label_selector, options.field_selector, call.budget)
        asked = parse_revision(options.resource_version)
        initial: Literal["none", "plain", "marked"] = "none"
        if options.send_initial_events:
            self._require_reached(asked)
            initial = "marked" if options.bookmarks else "plain"
        elif options.send_initial_events is None and asked == 0:
            initial = "plain"
        since = asked if initial == "none" and asked > 0 else self._store.revision
        return RegistryWatch(
            store=self._store,
            resource=resource,
            render=self.render,
            selection=selection,
            since=since,
            initial=initial,
            bookmarks=options.bookmarks,
        )

    def _require_reached(self, revision: Revision) -> None:
        if revision > self._store.revision:
            raise too_large_revision(revision, self._store.revision)


def _cut(entries: Sequence[StoreEntry], limit: int) -> tuple[Sequence[StoreEntry], int]:
    """Return one page, and the number of entries after it."""
    return (entries[:limit], max(len(entries) - limit, 0)) if limit > 0 else (entries, 0)


def _pick(selection: Selection, entries: Sequence[StoreEntry], limit: int) -> tuple[Sequence[StoreEntry], int]:
    """Return one page of the matching entries. As upstream, do not check whether later entries match too."""
    shown: list[StoreEntry] = []
    for place, entry in enumerate(entries, 1):
        if selection.matches(entry):
            shown.append(entry)
            if len(shown) == limit:
                return shown, len(entries) - place
    return shown, 0
