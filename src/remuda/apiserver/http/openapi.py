"""OpenAPI v3: an index of group-versions, and a document for each, built at its first request.

The index names each document with a hash that changes when the document may have changed, so clients may cache a
document with its hash forever. The hash does not depend on the content, because the index would then have to build
every document. It consists of a random part of this process and the number of changes of the group-version's resources.
"""

from __future__ import annotations

import os
import time
from email.utils import formatdate

import msgspec

from remuda.apiserver.http.answers import COMPRESS_FROM, audit_header, gzipped, takes_gzip
from remuda.apiserver.http.interfaces import BuildOpenApi
from remuda.apiserver.http.negotiate import parse_accept
from remuda.apiserver.registry.calls import ServedResources
from remuda.apiserver.resource import Resource
from remuda.kube.web import Request, Response, header_block, text

_PREFIX = "/openapi/v3"
_YEAR_SECONDS = 365 * 86400


class _GroupVersion:
    __slots__ = ("body", "hash", "resources", "squeezed")

    def __init__(self, resources: list[Resource], hash_: str) -> None:
        self.resources = resources
        self.hash = hash_
        self.body: bytes | None = None
        self.squeezed: bytes | None = None


class OpenApi:
    def __init__(self, resources: ServedResources, build: BuildOpenApi) -> None:
        self._resources = resources
        self._build = build
        self._generation = -1
        self._run = os.urandom(16).hex().upper()
        self._changes = 0
        self._by_path: dict[str, _GroupVersion] = {}

    def serve(self, request: Request) -> Response:
        self._refresh()
        path = request.path.rstrip("/")
        if path == _PREFIX:
            return self._index(request)
        found = self._by_path.get(path[len(_PREFIX) + 1 :])
        if found is None:
            return text(404, "404 page not found\n")
        if not _takes_json(request.header(b"accept")):
            return text(406, "")
        return self._document(request, path, found)

    def _refresh(self) -> None:
        if self._generation == self._resources.generation:
            return
        self._generation = self._resources.generation
        now: dict[str, list[Resource]] = {}
        for resource in self._resources.all():
            prefix = "apis/" if resource.group else "api/"
            now.setdefault(prefix + resource.api_version, []).append(resource)
        before, self._by_path = self._by_path, {}
        for path, resources in now.items():
            known = before.get(path)
            if known is not None and _are_same(known.resources, resources):
                self._by_path[path] = known
            else:
                self._changes += 1
                self._by_path[path] = _GroupVersion(resources, f"{self._run}{self._changes:X}")

    def _index(self, request: Request) -> Response:
        paths = {
            path: {"serverRelativeURL": f"{_PREFIX}/{path}?hash={found.hash}"}
            for path, found in sorted(self._by_path.items())
        }
        body = msgspec.json.encode({"paths": paths})
        etag = f'"{self._run}{self._generation:X}"'
        headers = [("Cache-Control", "no-cache, private"), ("ETag", etag)]
        if request.header(b"if-none-match") == etag:
            return Response(304, b"", audit_header(request) + header_block(headers))
        headers.append(("Content-Type", "application/json"))
        return Response(200, body, audit_header(request) + header_block(headers))

    def _document(self, request: Request, path: str, found: _GroupVersion) -> Response:
        etag = f'"{found.hash}"'
        asked = request.first("hash")
        headers = [("ETag", etag), ("Vary", "Accept")]
        if asked and asked != found.hash:
            headers.append(("Location", f"{path}?hash={found.hash}"))
            return Response(301, b"", audit_header(request) + header_block(headers))
        if asked:
            expires = formatdate(int(time.time()) + _YEAR_SECONDS, usegmt=True)
            headers += [("Cache-Control", "public, immutable"), ("Expires", expires)]
        else:
            headers.append(("Cache-Control", "no-cache, private"))
        if request.header(b"if-none-match") == etag:
            return Response(304, b"", audit_header(request) + header_block(headers))
        headers.append(("Content-Type", "application/json"))
        body = self._body(found)
        if len(body) >= COMPRESS_FROM and takes_gzip(request):
            headers.append(("Content-Encoding", "gzip"))
            if found.squeezed is None:
                found.squeezed = gzipped(body)
            body = found.squeezed
        return Response(200, body, audit_header(request) + header_block(headers))

    def _body(self, found: _GroupVersion) -> bytes:
        if found.body is None:
            found.body = msgspec.json.encode(self._build(found.resources))
        return found.body


def _are_same(before: list[Resource], now: list[Resource]) -> bool:
    return len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))


def _takes_json(accept: str) -> bool:
    if not accept:
        return True
    return any(c.type in ("application", "*") and c.subtype in ("json", "*") for c in parse_accept(accept))
