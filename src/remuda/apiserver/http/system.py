"""Paths of the server itself: version, health, metrics, index, and the keys that verify its tokens."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from remuda.apiserver.http.answers import audit_header, json_headers
from remuda.apiserver.http.metrics import RequestMetrics
from remuda.apiserver.http.negotiate import method_not_allowed, require_get
from remuda.kube.web import TEXT_HEADERS, Request, Response, header_block, text

log = logging.getLogger(__name__)

KUBERNETES_MINOR = 36
GIT_VERSION = "v1.36.3+remuda"

# A health check returns the error, or an empty string.
Check = Callable[[], str]
MayRead = Callable[[str], bool]  # whether the caller may read another path
PathHandler = Callable[[Request, MayRead], Response]
Document = tuple[str, Callable[[], Any]]  # its media type, and the function that builds it

_JSON_ONLY = ("application/json",)
_ENDPOINTS = ("healthz", "livez", "readyz")
_METRICS_HEADERS = header_block([("Content-Type", "text/plain; version=0.0.4; charset=utf-8")])


def version_document() -> dict[str, str]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": "1",
        "minor": str(KUBERNETES_MINOR),
        "emulationMajor": "1",
        "emulationMinor": str(KUBERNETES_MINOR),
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": str(KUBERNETES_MINOR - 1),
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": f"{platform.python_implementation().lower()}-{platform.python_version()}",
        "platform": f"{platform.system().lower()}/{machine}",
    }


class SystemPaths:
    """Exact paths with a handler each. `checks` belong to every health endpoint, `readiness` only to /readyz, because a
    restart does not help a server that is not ready. `documents` are public answers by path (OpenID configuration,
    keys).
    """

    def __init__(
        self,
        metrics: RequestMetrics,
        checks: Mapping[str, Check],
        readiness: Mapping[str, Check],
        documents: Mapping[str, Document],
        listed: Callable[[], list[str]],
    ) -> None:
        self._listed = listed
        self._version = msgspec.json.format(msgspec.json.encode(version_document()), indent=2)
        self._handlers: dict[str, PathHandler] = {
            "/": self._index,
            "/version": self._serve_version,
            "/metrics": lambda request, may_read: Response(200, metrics.render(), _METRICS_HEADERS),
        }
        for path, make in documents.items():
            self._handlers[path] = _document_handler(*make)
        for endpoint in _ENDPOINTS:
            run = {"ping": _always_well, **checks, **(readiness if endpoint == "readyz" else {})}
            self._handlers[f"/{endpoint}"] = _health_handler(endpoint, run)
            for name, check in run.items():
                self._handlers[f"/{endpoint}/{name}"] = _check_handler(check)

    def find(self, path: str) -> PathHandler | None:
        return self._handlers.get(path) or self._handlers.get(path.rstrip("/"))

    def _serve_version(self, request: Request, may_read: MayRead) -> Response:
        require_get(request, _JSON_ONLY)
        return Response(200, self._version, json_headers(request))

    def _index(self, request: Request, may_read: MayRead) -> Response:
        paths = sorted({*self._handlers, *self._listed()} - {"/"})
        body = msgspec.json.format(msgspec.json.encode({"paths": paths}), indent=2)
        return Response(200, body, json_headers(request))


def _health_handler(endpoint: str, checks: Mapping[str, Check]) -> PathHandler:
    def serve(request: Request, may_read: MayRead) -> Response:
        excluded, is_verbose = set(request.query.get("exclude", [])), "verbose" in request.query
        lines, failed = [], []
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif problem := check():
                # Any client may read this, but only some may read the check itself; the log has the reason.
                why = problem if is_verbose and may_read(f"/{endpoint}/{name}") else "reason withheld"
                lines.append(f"[-]{name} failed: {why}")
                failed.append(f"{name}: {problem}")
            else:
                lines.append(f"[+]{name} ok")
        unknown = sorted(excluded - set(checks))
        if unknown:
            quoted = ",".join(f'"{name}"' for name in unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
        told = "".join(f"{line}\n" for line in lines)
        if failed:
            log.warning("%s check failed: %s", endpoint, "; ".join(failed))
            return text(500, f"{told}{endpoint} check failed\n")
        answer = f"{told}{endpoint} check passed\n" if is_verbose else "ok"
        return Response(200, answer.encode(), audit_header(request) + TEXT_HEADERS)

    return serve


def _check_handler(check: Check) -> PathHandler:
    def serve(request: Request, may_read: MayRead) -> Response:
        problem = check()
        if problem:
            return text(500, f"internal server error: {problem}\n")
        return Response(200, b"ok", audit_header(request) + TEXT_HEADERS)

    return serve


def _document_handler(media_type: str, make: Callable[[], Any]) -> PathHandler:
    headers = header_block((("Content-Type", media_type), ("Cache-Control", "public, max-age=3600")))

    def serve(request: Request, may_read: MayRead) -> Response:
        if request.method != "GET":
            raise method_not_allowed()
        return Response(200, msgspec.json.encode(make()), audit_header(request) + headers)

    return serve


def _always_well() -> str:
    return ""
