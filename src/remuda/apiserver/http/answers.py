"""Responses: encodes objects, lists and errors of the registry in the form that the client requested.

Every answer carries an Audit-Id and, by default, forbids caching. Warnings travel in headers, limited in length and
without control characters. Bodies of 128 KiB and more are compressed for clients that accept gzip, in a thread.
"""

from __future__ import annotations

import asyncio
import os
import re
import zlib
from collections.abc import Awaitable, Iterable
from itertools import count

import msgspec

from remuda.apiserver.http.lists import list_body, partial_list, partial_object
from remuda.apiserver.http.negotiate import Form, plain_format, wants_pretty
from remuda.apiserver.http.table import Tablers, included_object
from remuda.apiserver.http.yaml_body import encode_yaml
from remuda.apiserver.registry.calls import Page
from remuda.apiserver.resource import Resource
from remuda.kube.errors import StatusError
from remuda.kube.web import Request, Response, header_block

COMPRESS_FROM = 128 * 1024  # upstream's threshold

_WARNINGS_TOTAL = 4096  # characters in all, above which each warning is cut; both limits are upstream's
_WARNING_CUT = 256
_CONTENT_TYPES = {
    "json": header_block([("Cache-Control", "no-cache, private"), ("Content-Type", "application/json")]),
    "yaml": header_block([("Cache-Control", "no-cache, private"), ("Content-Type", "application/yaml")]),
}
_GZIP_HEADERS = header_block([("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")])
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_run = os.urandom(10).hex()
_AUDIT_PREFIX = f"{_run[:8]}-{_run[8:12]}-4{_run[13:16]}-a{_run[17:20]}-"
_audit_numbers = count(1)


def audit_header(request: Request) -> bytes:
    """Return the client's Audit-Id, or a unique one: a random part per process and a number."""
    given = request.headers.get(b"audit-id")
    if given and len(given) <= 64 and given.isascii():
        return b"Audit-Id: %b\r\n" % given
    return f"Audit-Id: {_AUDIT_PREFIX}{next(_audit_numbers):012x}\r\n".encode()


def json_headers(request: Request) -> bytes:
    return audit_header(request) + _CONTENT_TYPES["json"]


def warning_headers(warnings: Iterable[str]) -> bytes:
    texts = [text for text in dict.fromkeys(warnings) if text and not _CONTROL.search(text)]
    if sum(map(len, texts)) > _WARNINGS_TOTAL:
        texts = [text[:_WARNING_CUT] for text in texts[: _WARNINGS_TOTAL // _WARNING_CUT]]
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return header_block(("Warning", f'299 - "{text}"') for text in quoted)


def finish(
    request: Request, status: int, body: bytes, form: Form, warnings: Iterable[str] = ()
) -> Response | Awaitable[Response]:
    """Encode JSON bytes as an answer in the negotiated format."""
    if form.format == "yaml":
        body = encode_yaml(msgspec.json.decode(body))
    elif wants_pretty(request, form):
        body = msgspec.json.format(body, indent=2)
    headers = audit_header(request) + _CONTENT_TYPES[form.format]
    if warnings:
        headers += warning_headers(warnings)
    if len(body) >= COMPRESS_FROM and takes_gzip(request):
        return _compressed(status, body, headers)
    return Response(status, body, headers)


def takes_gzip(request: Request) -> bool:
    accepted = request.headers.get(b"accept-encoding")
    return accepted is not None and b"gzip" in [token.strip() for token in accepted.split(b",")]


async def _compressed(status: int, body: bytes, headers: bytes) -> Response:
    small = await asyncio.get_running_loop().run_in_executor(None, gzipped, body)
    return Response(status, small, headers + _GZIP_HEADERS)


def gzipped(body: bytes) -> bytes:
    # Level 1, as upstream; 31 selects a gzip header with the largest window.
    squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
    return squeeze.compress(body) + squeeze.flush()


def error_response(request: Request, error: StatusError) -> Response:
    """Return an error response. If no format is acceptable, it falls back to JSON."""
    status = error.status()
    form = plain_format(request.headers.get(b"accept", b"")) or "json"
    body = encode_yaml(status) if form == "yaml" else msgspec.json.encode(status)
    if form == "json":
        body = msgspec.json.format(body, indent=2) if wants_pretty(request, Form()) else body + b"\n"
    headers = audit_header(request) + _CONTENT_TYPES[form]
    extra = dict(error.headers)
    retry = error.details.get("retryAfterSeconds")
    if retry:
        extra["Retry-After"] = str(retry)
    if extra:
        headers += header_block(extra.items())
    if error.warnings:
        headers += warning_headers(error.warnings)
    return Response(error.code, body, headers)


class Views:
    """Renders objects and lists as themselves, as tables or as metadata only."""

    def __init__(self) -> None:
        self.tablers = Tablers()

    def object(self, request: Request, resource: Resource, value: bytes, form: Form) -> bytes:
        if not form.view:
            return value + b"\n"
        if is_status(value):
            return value
        if form.view == "Table":
            include = included_object(request)
            return self.tablers.of(resource).of_object(value, include, form.view_version)
        if form.view == "PartialObjectMetadata":
            return partial_object(value, form.view_version)
        raise _unfit_view("you requested PartialObjectMetadataList, but the requested object is not a list")

    def page(self, request: Request, resource: Resource, page: Page, form: Form) -> bytes:
        if not form.view:
            return list_body(resource, page)
        if form.view == "Table":
            return self.tablers.of(resource).of_page(page, included_object(request), form.view_version)
        if form.view == "PartialObjectMetadataList":
            return partial_list(page, form.view_version)
        raise _unfit_view("you requested PartialObjectMetadata, but the requested object is a list")


class _Kind(msgspec.Struct):
    kind: str = ""
    apiVersion: str = ""


_kind_of = msgspec.json.Decoder(_Kind).decode


def is_status(value: bytes) -> bool:
    found = _kind_of(value)
    return found.kind == "Status" and found.apiVersion == "v1"


def _unfit_view(message: str) -> StatusError:
    return StatusError(406, "NotAcceptable", message)
