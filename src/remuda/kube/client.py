"""The Client protocol: how controllers speak to any Kubernetes API, wherever it runs.

Objects come back as JSON bytes: immutable, a quarter of the memory of dicts, decoded by whoever needs them into what
they need. Errors are `StatusError`s on every transport. The embedded engine implements this in process
(`apiserver.client`); over HTTP it works on any Kubernetes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

PatchKind = Literal["json", "merge", "strategic", "apply"]
Propagation = Literal["", "Orphan", "Background", "Foreground"]


class Target(NamedTuple):
    """One resource of one version: `Target("cluster.x-k8s.io/v1beta2", "machines")`."""

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
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    value: bytes


class Client(Protocol):
    async def get(self, target: Target, namespace: str, name: str, *, subresource: str = "") -> bytes: ...

    async def list(
        self,
        target: Target,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Listing: ...

    def watch(
        self,
        target: Target,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        send_initial_events: bool = False,
    ) -> AsyncIterator[Change]:
        """Ends when the server ends it; bookmarks are always asked for."""

    async def create(
        self,
        target: Target,
        namespace: str,
        obj: dict[str, Any],
        *,
        name: str = "",
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> bytes:
        """`name` only with a subresource (a ServiceAccount's token, a Pod's eviction)."""

    async def update(
        self,
        target: Target,
        namespace: str,
        name: str,
        obj: dict[str, Any],
        *,
        subresource: str = "",
        field_manager: str = "",
        dry_run: bool = False,
    ) -> bytes: ...

    async def patch(
        self,
        target: Target,
        namespace: str,
        name: str,
        patch: Any,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> bytes: ...

    async def delete(
        self,
        target: Target,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation = "",
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> bytes: ...

    async def delete_collection(
        self,
        target: Target,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        propagation: Propagation = "",
    ) -> None: ...
