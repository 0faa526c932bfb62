"""Content negotiation: the form of an answer, from the Accept header, and the form of a body, from Content-Type.

Accept headers come in a handful of spellings, so each spelling is parsed once and cached.

Objects are served as JSON or YAML. A client that offers protobuf first (client-go does, for built-in kinds) always
offers JSON as well and gets that. `as=Table` and `as=PartialObjectMetadata(List)` ask for a view of the object.

Endpoints that are served before any CRD exists (built-in kinds, discovery, version, token keys) have strict checks. The
real server has a separate router for these, which is stricter than the one for custom resources: it rejects a method
that a route does not have (HEAD too), and an Accept header must name a media type or `*/*`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from remuda.apiserver.registry.calls import PatchKind
from remuda.kube.errors import StatusError, not_acceptable, unsupported_media_type
from remuda.kube.web import Request

Format = Literal["json", "yaml"]

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

_FORMATS: tuple[tuple[str, str, Format], ...] = (("application", "json", "json"), ("application", "yaml", "yaml"))
_SERVED = (JSON, YAML)
_SERVED_STREAMS = (f"{JSON};stream=watch",)
_VIEWS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_META_VERSIONS = frozenset({"v1", "v1beta1"})
_HUMAN_AGENTS = (b"curl", b"Wget", b"Mozilla/5.0")

_PATCHES: dict[str, PatchKind] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


class Form(msgspec.Struct, frozen=True):
    """Form in which to write an answer. `view` is empty for the object itself."""

    format: Format = "json"
    view: str = ""
    view_group: str = ""
    view_version: str = ""
    pretty: bool = False


class Clause(msgspec.Struct, frozen=True):
    type: str
    subtype: str
    quality: float
    params: dict[str, str]


PLAIN = Form()


def parse_accept(header: str) -> list[Clause]:
    """Return the clauses of an Accept header, best first: by quality, then by specificity, then as written."""
    clauses = [clause for part in header.split(",") if (clause := _parse_clause(part)) is not None]
    clauses.sort(key=lambda c: (-c.quality, c.type == "*", c.subtype == "*"))
    return clauses


def _parse_clause(part: str) -> Clause | None:
    media, *raw_params = (piece.strip() for piece in part.split(";"))
    kind, _, subtype = media.partition("/")
    if media == "*":
        kind, subtype = "*", "*"
    if not kind or not subtype:
        return None
    params = dict(p.split("=", 1) for p in raw_params if "=" in p)
    try:
        quality = float(params.pop("q", 1.0))
    except ValueError:
        quality = 1.0
    return Clause(kind, subtype, quality, {k.strip(): v.strip().strip('"') for k, v in params.items()})


def _matches(clause: Clause, kind: str, subtype: str) -> bool:
    return clause.type in (kind, "*") and clause.subtype in (subtype, "*")


def _view_allowed(params: dict[str, str], *, views: frozenset[str], group: str, versions: frozenset[str]) -> bool:
    if not ("as" in params or "g" in params or "v" in params):
        return True
    return params.get("as", "") in views and params.get("g", "") == group and params.get("v", "") in versions


@lru_cache(maxsize=512)
def _form_of(header: bytes) -> Form | None:
    if not header:
        return PLAIN
    for clause in parse_accept(header.decode("latin-1")):
        params = clause.params
        for kind, subtype, form in _FORMATS:
            if not _matches(clause, kind, subtype):
                continue
            if params.get("stream", "") not in ("", "watch") or params.get("sv", "v1") not in ("", "v1"):
                continue
            if not _view_allowed(params, views=_VIEWS, group="meta.k8s.io", versions=_META_VERSIONS):
                continue
            return Form(
                form, params.get("as", ""), params.get("g", ""), params.get("v", ""), params.get("pretty") == "1"
            )
    return None


def negotiate(request: Request) -> Form:
    """Return the form of an answer with objects. Raise 406."""
    form = _form_of(request.headers.get(b"accept", b""))
    if form is None:
        raise not_acceptable(_SERVED)
    return form


def negotiate_stream(request: Request) -> Form:
    """Return the form of a watch, which cannot be YAML because YAML has no framing."""
    form = negotiate(request)
    if form.format != "json":
        raise not_acceptable(_SERVED_STREAMS)
    return form


@lru_cache(maxsize=512)
def plain_format(header: bytes) -> Format | None:
    """Return the format of answers that have no views: errors, discovery, version."""
    if not header:
        return "json"
    for clause in parse_accept(header.decode("latin-1")):
        for kind, subtype, form in _FORMATS:
            if _matches(clause, kind, subtype) and "as" not in clause.params:
                return form
    return None


@lru_cache(maxsize=256)
def aggregated_discovery_version(header: bytes) -> str:
    """Return `v2` or `v2beta1` if the best acceptable clause requests aggregated discovery, else an empty string."""
    for clause in parse_accept(header.decode("latin-1")):
        if not _matches(clause, "application", "json"):
            continue
        params = clause.params
        if "as" not in params and "g" not in params:
            return ""
        wanted = params.get("as") == "APIGroupDiscoveryList" and params.get("g") == "apidiscovery.k8s.io"
        if wanted and params.get("v") in ("v2", "v2beta1"):
            return params["v"]
    return ""


def wants_pretty(request: Request, form: Form) -> bool:
    """Return whether to indent JSON: on request, and for curl and browsers."""
    if form.pretty:
        return True
    if "pretty" in request.raw_query:
        asked = request.first("pretty")
        if asked:
            return asked in ("1", "t", "T", "true", "TRUE", "True")
    return request.headers.get(b"user-agent", b"").startswith(_HUMAN_AGENTS)


def media_type(header: str) -> str:
    return header.split(";", 1)[0].strip().lower()


def body_media_type(request: Request, accepted: Sequence[str]) -> str:
    """Return the media type of the body; the default is the first accepted one. Raise 415."""
    stated = request.header(b"content-type")
    if not stated:
        return accepted[0]
    media = media_type(stated)
    if media not in accepted:
        raise unsupported_media_type(accepted)
    return media


def patch_kind(request: Request, *, strategic: bool) -> PatchKind:
    """Return the patch type. Strategic merge patch is for built-in kinds only. Raise 415."""
    kind = _PATCHES.get(media_type(request.header(b"content-type")))
    if kind is None and strategic:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    if kind is None or (kind == "strategic" and not strategic):
        raise unsupported_media_type(media for media, kind in _PATCHES.items() if kind != "strategic")
    return kind


def method_not_allowed() -> StatusError:
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def require_get(request: Request, produced: tuple[str, ...] = _SERVED) -> None:
    if request.method != "GET":
        raise method_not_allowed()
    require_named(request, produced)


def require_named(request: Request, produced: tuple[str, ...] = _SERVED) -> None:
    """Raise 406 unless the client names a supported media type. The requested view is checked later."""
    accepted = request.headers.get(b"accept")
    if accepted and not _names(accepted, produced):
        listed = ", ".join(produced)
        raise StatusError(
            406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {listed}", details={}
        )


@lru_cache(maxsize=512)
def _names(header: bytes, produced: tuple[str, ...]) -> bool:
    media = [clause.partition(";")[0].strip() for clause in header.decode("latin-1").split(",")]
    return any(name == "*/*" or name in produced or name.endswith(".protobuf") for name in media)
