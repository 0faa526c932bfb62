"""List bodies: the items' bytes joined, never decoded.

Items of built-in lists carry no apiVersion and kind of their own, those of custom resources do. Objects are encoded
with these two first (see `registry.objects`), so leaving them out is cutting off a prefix that all items share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.apiserver.registry.calls import Page
from remuda.apiserver.resource import Resource

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def list_body(resource: Resource, page: Page) -> bytes:
    items = b",".join(page.items) if resource.custom else _without_type(resource, page.items)
    kind = resource.list_kind or f"{resource.kind}List"
    if resource.custom:
        head = f'{{"apiVersion":"{resource.api_version}","kind":"{kind}","metadata":'.encode()
        return b'%b%b,"items":[%b]}\n' % (head, list_metadata(page, explicit=True), items)
    head = f'{{"kind":"{kind}","apiVersion":"{resource.api_version}","metadata":'.encode()
    return b'%b%b,"items":[%b]}\n' % (head, list_metadata(page), items)


def list_metadata(page: Page, *, explicit: bool = False) -> bytes:
    """`explicit`: an empty continue is written out, as lists of custom resources do."""
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_token or explicit:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return _encode(metadata)


def _without_type(resource: Resource, items: Sequence[bytes]) -> bytes:
    if not items:
        return b""
    prefix = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode()
    cut = len(prefix)
    if all(item.startswith(prefix) for item in items):
        return b"{" + b",{".join([item[cut:] for item in items])
    return b",".join([_encode(_untyped(item)) for item in items])


def _untyped(item: bytes) -> dict[str, Any]:
    obj: dict[str, Any] = _decode(item)
    obj.pop("apiVersion", None)
    obj.pop("kind", None)
    return obj
