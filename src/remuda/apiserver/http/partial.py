"""PartialObjectMetadata and its list: an object's metadata alone, cut out of its bytes without decoding it."""

from __future__ import annotations

import msgspec

from remuda.apiserver.http.lists import list_metadata
from remuda.apiserver.registry.calls import Page


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
