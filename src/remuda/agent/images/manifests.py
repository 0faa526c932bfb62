"""Manifests, which list the parts of an image. They are read the same way from a registry and from a local archive.

Everything except a tag is named by its digest, so the content is verified, whichever server it comes from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from remuda.agent.images import ImageError
from remuda.agent.images.platforms import Platform, choose, offered
from remuda.agent.images.references import is_digest

INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
IMAGES = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
LARGEST = 4 << 20  # limit of registries for a manifest
_DEEPEST = 3  # an index may refer to another index


class Layer(NamedTuple):
    digest: str
    size: int


def check(content: bytes, digest: str, what: str) -> None:
    algorithm, _, expected = digest.partition(":")
    if hashlib.new(algorithm, content).hexdigest() != expected:
        raise ImageError(f"{what} is not what its digest {digest} says")


def layers(content: bytes, host: Platform, fetch: Callable[[str], bytes]) -> list[Layer]:
    """Return the layers, lowest first, of the image for this host.

    `fetch` returns a further manifest by its digest, which is verified here.
    """
    for _ in range(_DEEPEST):
        document = _document(content)
        if "manifests" not in document:
            return _layers(document)
        entry = choose(document["manifests"], host)
        if entry is None:
            raise ImageError(f"there is no image for {host}, only for {offered(document['manifests'])}")
        digest = entry.get("digest")
        if not is_digest(digest):
            raise ImageError("an index names an image without a digest")
        content = fetch(str(digest))
        check(content, str(digest), "a manifest")
    raise ImageError("its index refers to an index of indexes")


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise ImageError("its manifest is not JSON") from None
    if not isinstance(document, dict):
        raise ImageError("its manifest is not a JSON object")
    if document.get("schemaVersion") == 1:
        raise ImageError("its manifest is of schema 1, which is obsolete; push the image again")
    return document


def _layers(document: dict[str, Any]) -> list[Layer]:
    entries = document.get("layers")
    if not isinstance(entries, list):
        raise ImageError("its manifest names no layers")
    found = []
    for entry in entries:
        digest, size = (entry.get("digest"), entry.get("size")) if isinstance(entry, dict) else (None, None)
        if not is_digest(digest) or not isinstance(size, int) or size < 0:
            raise ImageError("its manifest has a layer without a digest or a size")
        found.append(Layer(str(digest), size))
    return found
