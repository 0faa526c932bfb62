"""Strict request checks for endpoints served before any CRD exists: built-in kinds, discovery, version, token keys.

The real server has a separate router for these, which is stricter than the one for custom resources: it rejects a
method that a route does not have (HEAD too), and an Accept header must name a media type or `*/*`.
"""

from __future__ import annotations

from functools import lru_cache

from remuda.apiserver.http.negotiate import JSON, YAML
from remuda.kube.errors import StatusError
from remuda.kube.web import Request

_RESOURCES = (JSON, YAML)


def method_not_allowed() -> StatusError:
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def require_get(request: Request, produced: tuple[str, ...] = _RESOURCES) -> None:
    if request.method != "GET":
        raise method_not_allowed()
    require_named(request, produced)


def require_named(request: Request, produced: tuple[str, ...] = _RESOURCES) -> None:
    """Raises 406 unless the client names what can be produced. Whether it can be had in the wished form comes later."""
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
