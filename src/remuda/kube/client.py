"""The Client protocol: how controllers access any Kubernetes API, wherever it runs.

Objects are returned as JSON bytes: immutable, a quarter of the memory of dicts. Each caller decodes the fields that it
needs. Each object is complete, with its apiVersion and kind, also as the item of a list. Errors are `StatusError`s on
every transport. The embedded engine implements the protocol in process (`apiserver.client`); over HTTP it works on any
Kubernetes (`kube.http`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, Unpack

import msgspec

from remuda.kube.errors import Gone

PatchKind = Literal["json", "merge", "strategic", "apply"]
ChangeType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
Propagation = Literal["", "Orphan", "Background", "Foreground"]


class Target(NamedTuple):
    """Resource of one version: `Target("cluster.x-k8s.io/v1beta2", "machines")`."""

    api_version: str
    plural: str

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]


class Listing(msgspec.Struct, frozen=True):
    items: Sequence[bytes]
    resource_version: str
    continue_token: str = ""


class Change(msgspec.Struct, frozen=True):
    """Event of a watch. A BOOKMARK's value has only kind, apiVersion and metadata."""

    type: ChangeType
    value: bytes


# Keyword arguments of a Client's methods. A client that forwards a call takes them as `**options`. A client that uses
# them may name each with its default, which is empty, false or None everywhere.


class ListArguments(TypedDict, total=False):
    label_selector: str
    field_selector: str
    limit: int
    continue_token: str
    resource_version: str
    metadata_only: bool  # saves bandwidth: objects may then come as `PartialObjectMetadata`, or whole


class WatchArguments(TypedDict, total=False):
    resource_version: str
    label_selector: str
    field_selector: str
    send_initial_events: bool
    metadata_only: bool
    timeout_seconds: float  # 0: the transport's default


class WriteArguments(TypedDict, total=False):
    subresource: str
    field_manager: str
    dry_run: bool


class CreateArguments(WriteArguments, total=False):
    name: str  # only with a subresource (a ServiceAccount's token, a Pod's eviction)


class PatchArguments(WriteArguments, total=False):
    kind: PatchKind  # "merge" if not given
    force: bool


class DeleteArguments(TypedDict, total=False):
    uid: str | None
    resource_version: str | None
    propagation: Propagation
    grace_period_seconds: int | None
    dry_run: bool


class DeleteCollectionArguments(TypedDict, total=False):
    label_selector: str
    field_selector: str
    propagation: Propagation


class Client(Protocol):
    async def get(self, target: Target, namespace: str, name: str, *, subresource: str = "") -> bytes: ...

    async def list(self, target: Target, namespace: str = "", **options: Unpack[ListArguments]) -> Listing: ...

    def watch(
        self, target: Target, namespace: str = "", **options: Unpack[WatchArguments]
    ) -> AsyncGenerator[Change, None]:
        """Yield changes until the server ends the watch or `timeout_seconds` have passed.

        Raise a `StatusError` on failure; code 410 means that the caller must list again. Bookmarks are always
        requested. Close the iterator (`contextlib.aclosing`) to release the connection.
        """

    async def create(
        self, target: Target, namespace: str, obj: dict[str, Any], **options: Unpack[CreateArguments]
    ) -> bytes: ...

    async def update(
        self, target: Target, namespace: str, name: str, obj: dict[str, Any], **options: Unpack[WriteArguments]
    ) -> bytes: ...

    async def patch(
        self, target: Target, namespace: str, name: str, patch: Any, **options: Unpack[PatchArguments]
    ) -> bytes: ...

    async def delete(self, target: Target, namespace: str, name: str, **options: Unpack[DeleteArguments]) -> bytes: ...

    async def delete_collection(
        self, target: Target, namespace: str = "", **options: Unpack[DeleteCollectionArguments]
    ) -> None: ...

    async def raw_get(self, path: str) -> bytes:
        """Return the answer of a non-resource path: `/version`, `/readyz`, `/apis/apps/v1`."""

    async def close(self) -> None:
        """Release connections. Running watches end."""


PAGE = 500  # kubectl's default --chunk-size


async def list_all(
    client: Client,
    target: Target,
    namespace: str = "",
    *,
    label_selector: str = "",
    field_selector: str = "",
    metadata_only: bool = False,
    page: int = PAGE,
) -> Listing:
    """Return the whole list, as of one revision, fetched in pages of limited size.

    If the list takes so long that the revision expires (410), request it once more, in one piece.
    """
    items: list[bytes] = []
    token = ""
    while True:
        try:
            found = await client.list(
                target,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                metadata_only=metadata_only,
                limit=page,
                continue_token=token,
            )
        except Gone:
            if not token:
                raise
            # Items of the expired revision must not be mixed with newer ones. A list in one piece has no token that can
            # expire.
            items, token, page = [], "", 0
            continue
        items += found.items
        token = found.continue_token
        if not token:
            return Listing(items, found.resource_version)
