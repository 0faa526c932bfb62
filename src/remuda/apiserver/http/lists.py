"""List bodies and PartialObjectMetadata: the bytes of stored objects, joined or cut, never decoded.

Items of built-in lists have no apiVersion and kind; those of custom resources do. Stored objects start with these two
fields (see `registry.objects`), so the server removes them by cutting off a common prefix. PartialObjectMetadata and
its list hold an object's metadata alone, cut out of its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from remuda.apiserver.registry.calls import Page
from remuda.apiserver.resource import Resource

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


_TAIL = b"]}\n"


def list_body(resource: Resource, page: Page) -> bytes:
    kind = resource.list_kind or f"{resource.kind}List"
    if resource.custom:
        head = f'{{"apiVersion":"{resource.api_version}","kind":"{kind}","metadata":'.encode()
        return _enclosed(b'%b%b,"items":[' % (head, list_metadata(page, explicit=True)), list(page.items), b",")
    head = f'{{"kind":"{kind}","apiVersion":"{resource.api_version}","metadata":'.encode()
    return _untyped_items(b'%b%b,"items":[' % (head, list_metadata(page)), resource, page.items)


def _enclosed(head: bytes, items: list[bytes], separator: bytes) -> bytes:
    """Join all parts at once: a list of a megabyte is copied once, not once per part."""
    if not items:
        return head + _TAIL
    items[0] = head + items[0]
    items[-1] += _TAIL
    return separator.join(items)


def list_metadata(page: Page, *, explicit: bool = False) -> bytes:
    """Return a list's metadata. `explicit`: write an empty continue, as lists of custom resources do."""
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.continue_token or explicit:
        metadata["continue"] = page.continue_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    return _encode(metadata)


def _untyped_items(head: bytes, resource: Resource, items: Sequence[bytes]) -> bytes:
    prefix = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode()
    for item in items:
        if not item.startswith(prefix):
            return _enclosed(head, [_encode(_untyped(item)) for item in items], b",")
    cut = len(prefix)
    if not items:
        return head + _TAIL
    return _enclosed(head + b"{", [item[cut:] for item in items], b",{")


def _untyped(item: bytes) -> dict[str, Any]:
    obj: dict[str, Any] = _decode(item)
    obj.pop("apiVersion", None)
    obj.pop("kind", None)
    return obj


class _Metadata(msgspec.Struct):
    metadata: msgspec.Raw = msgspec.Raw(b"{}")


_metadata_of = msgspec.json.Decoder(_Metadata).decode


def partial_object(value: bytes, version: str = "v1") -> bytes:
    head = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":' % version.encode()
    return b"%b%b}" % (head, bytes(_metadata_of(value).metadata))


def partial_list(page: Page, version: str = "v1") -> bytes:
    items = b",".join([partial_object(item, version) for item in page.items])
    head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/%b","metadata":%b,"items":['
    return b"%b%b]}" % (head % (version.encode(), list_metadata(page)), items)
