"""Interface of the registry: the types that HTTP and the in-process client pass in and get back.

A `Call` proves that the authorizer allowed the request: only `RegistryInterface.authorize` creates one. Objects are
returned as JSON bytes in the requested version, ready to send.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import msgspec

from remuda.apiserver.auth.user import User
from remuda.apiserver.resource import Obj, Resource
from remuda.apiserver.storage.types import EventType, Revision
from remuda.kube.cost import Budget

FieldValidation = Literal["Ignore", "Warn", "Strict"]
PatchKind = Literal["json", "merge", "strategic", "apply"]


class Call:
    """Authorized request on one resource. The registry adds `warnings`; the front end shows them.

    The registry sets `schema_checked` if decoding found no errors in the object and only its metadata has changed
    since. Validation then skips the schema, the most expensive step of an ordinary write. `budget` limits the cost of
    the request: all code that reads its body, selectors or schemas charges it.
    """

    __slots__ = ("budget", "name", "namespace", "resource", "schema_checked", "subresource", "user", "verb", "warnings")

    def __init__(
        self, user: User, verb: str, resource: Resource, namespace: str, name: str, subresource: str = ""
    ) -> None:
        self.user = user
        self.verb = verb
        self.resource = resource
        self.namespace = namespace  # empty: cluster-scoped, or all namespaces
        self.name = name
        self.subresource = subresource
        self.warnings: list[str] = []
        self.schema_checked = False
        self.budget = Budget(resource.limits)


class ListOptions(msgspec.Struct, kw_only=True):
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    resource_version_match: str = ""


class WatchOptions(msgspec.Struct, kw_only=True):
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: float = 0


class WriteOptions(msgspec.Struct, kw_only=True):
    field_manager: str = ""
    field_validation: FieldValidation = "Warn"
    dry_run: bool = False
    force: bool = False  # apply only


class DeleteOptions(msgspec.Struct, kw_only=True):
    grace_period_seconds: int | None = None
    propagation_policy: Literal["", "Orphan", "Background", "Foreground"] = ""
    precondition_uid: str | None = None
    precondition_resource_version: str | None = None
    dry_run: bool = False


class Page(msgspec.Struct, frozen=True):
    """List, or one page of it. `items` are whole objects, each with its apiVersion and kind."""

    items: Sequence[bytes]
    revision: Revision
    continue_token: str = ""
    remaining: int | None = None


class Written(msgspec.Struct, frozen=True):
    """Result of a write: an object, or for a completed delete a Status. `created` turns 200 into 201."""

    value: bytes
    created: bool = False


class WatchLine(msgspec.Struct, frozen=True):
    """Event of a watch. `value` is the object. The value of a BOOKMARK has only kind, apiVersion and metadata; that of
    an ERROR is a Status and ends the watch. `shared` caches encodings across watchers (see StoreEvent.lines).
    """

    type: EventType | Literal["BOOKMARK", "ERROR"]
    value: bytes
    shared: dict[object, bytes] | None = None


class Watch(Protocol):
    async def next_batch(self) -> Sequence[WatchLine]:
        """Return at least one line; an empty sequence means that the watch has ended."""

    def close(self) -> None: ...


class ServedResources(Protocol):
    """Resources served right now. `generation` changes with every change, so that answers can be cached."""

    @property
    def generation(self) -> int: ...

    def find(self, group: str, version: str, plural: str) -> Resource | None: ...

    def require_readable(self, group: str, plural: str) -> None:
        """Raise an error if a kind is not served because its definition cannot be read."""

    def all(self) -> Iterable[Resource]:
        """Return all resources in the order of discovery, the preferred version of a group first."""

    def is_fresh(self, group: str, version: str) -> bool: ...


class RegistryInterface(Protocol):
    """Interface of the verbs, as the front ends use it. `registry.Registry` implements it."""

    @property
    def resources(self) -> ServedResources: ...

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
        """Return the Call that the verbs below take, or raise Forbidden."""

    def get(self, call: Call, resource_version: str = "") -> bytes: ...

    def list(self, call: Call, options: ListOptions) -> Page: ...

    def watch(self, call: Call, options: WatchOptions) -> Watch: ...

    async def create(self, call: Call, obj: Obj, options: WriteOptions) -> Written:
        """Create an object, a subresource that has a handler (token, eviction, ...), or a review."""

    async def update(self, call: Call, obj: Obj, options: WriteOptions) -> Written: ...

    async def patch(
        self, call: Call, kind: PatchKind, patch: Any, options: WriteOptions, complaints: Sequence[str] = ()
    ) -> Written:
        """Patch an object. `patch` is the decoded body: a list for a JSON patch, otherwise a mapping.

        `complaints` are a strict decoder's errors: warnings, or a refusal if the options require strict decoding.
        """

    async def delete(self, call: Call, options: DeleteOptions) -> Written: ...

    async def delete_collection(self, call: Call, selection: ListOptions, options: DeleteOptions) -> Page: ...
