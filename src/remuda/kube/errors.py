"""Errors of the Kubernetes API: a `Status` with a reason, a code and, for invalid fields, one cause each.

All code that refuses a request raises `StatusError`, and both front ends (HTTP, the in-process client) understand it.
Wording follows kube-apiserver because people and programs grep for it.

Callers branch on subclasses (`except NotFound:`), not on codes. `StatusError(404, …)` is a `NotFound`, as
`OSError(ENOENT, …)` is a `FileNotFoundError`, so an error has the same class from every engine and every constructor.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

import msgspec

from remuda.kube import KubeError
from remuda.kube.go_text import quoted, shortened

_MOST_CAUSES = 128
_MOST_TEXT = 256 * 1024


class FieldError(NamedTuple):
    """Error in one field, as a cause of an Invalid status."""

    kind: str  # one of the constants below
    path: str  # spec.template.spec.containers[0].name
    bad: Any
    detail: str

    @property
    def message(self) -> str:
        """Return the message without the path, as in a status cause."""
        text = _KIND_TEXT[self.kind]
        if self.kind in _SHOWS_VALUE and self.bad is not OMITTED:
            text = f"{text}: {render_value(self.bad)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.path or '<nil>'}: {self.message}"


# Bad value of an error that does not show it.
OMITTED: Final = object()

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
TYPE_INVALID = "FieldValueTypeInvalid"
NOT_FOUND = "FieldValueNotFound"

_KIND_TEXT = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    TYPE_INVALID: "Invalid value",
    NOT_FOUND: "Not found",
}
_SHOWS_VALUE = {INVALID, NOT_SUPPORTED, DUPLICATE, TYPE_INVALID, TOO_MANY, NOT_FOUND}


def render_value(value: Any) -> str:
    """Print a bad value as kube-apiserver does: strings quoted, everything else as JSON."""
    if isinstance(value, dict | list):
        text = msgspec.json.encode(value).decode()
    elif isinstance(value, str):
        text = quoted(value)
    elif isinstance(value, bool) or value is None:
        text = msgspec.json.encode(value).decode()
    else:
        text = str(value)
    return shortened(text)


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(REQUIRED, path, "", detail)


def invalid(path: str, bad: Any, detail: str) -> FieldError:
    return FieldError(INVALID, path, bad, detail)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(FORBIDDEN, path, "", detail)


def duplicate(path: str, bad: Any) -> FieldError:
    return FieldError(DUPLICATE, path, bad, "")


def not_supported(path: str, bad: Any, supported: Iterable[str]) -> FieldError:
    return FieldError(NOT_SUPPORTED, path, bad, "supported values: " + ", ".join(f'"{s}"' for s in supported))


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(TOO_LONG, path, "", f"may not be more than {limit} {'byte' if limit == 1 else 'bytes'}")


def too_many(path: str, actual: int, limit: int) -> FieldError:
    return FieldError(TOO_MANY, path, actual, f"must have at most {limit} {'item' if limit == 1 else 'items'}")


class StatusError(KubeError):
    """Refused request, which a client receives as `kind:

    Status`. Constructing one yields the subclass for its code and reason, if there is one.
    """

    def __new__(cls, *args: Any, **named: Any) -> Self:
        # Only for StatusError itself: subclasses such as Unreachable have their own constructors and keep their class.
        chosen: Any = _class_for(*args, **named) if cls is StatusError else cls
        error: Self = super().__new__(chosen)
        return error

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self._has_details = details is not None  # kube-apiserver distinguishes `"details": {}` from no details
        self.headers = headers or {}
        self.metadata = metadata or {}
        self.warnings: list[str] = []  # warnings of the request, for Warning headers

    def status(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details or self._has_details:
            body["details"] = self.details
        body["code"] = self.code
        return body

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is rebuilt from its message alone, which these constructors do not take.
        return _rebuilt, (type(self), self.code, self.reason, self.message), self.__dict__


class NotFound(StatusError):
    """404: the object, its namespace or its kind does not exist."""


class AlreadyExists(StatusError):
    """409 AlreadyExists: another object has this name."""


class Conflict(StatusError):
    """409 for any other reason: the object has changed since it was read, or another manager owns the fields."""


class Gone(StatusError):
    """410 (Expired, Gone): the server no longer has this revision; only a new list helps."""


class Forbidden(StatusError):
    """403: the caller may not do this."""


class Unauthorized(StatusError):
    """401: the server does not accept the caller's credentials."""


_CLASSES: Final[dict[int, type[StatusError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
}


def _class_for(code: int, reason: str, *_: Any, **__: Any) -> type[StatusError]:
    """Return the class of an error. No other code decides it."""
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    return _CLASSES.get(code, StatusError)


def _rebuilt(cls: type[StatusError], code: int, reason: str, message: str) -> StatusError:
    """Return an error of `cls` without running its own constructor, for pickle and copy."""
    error = cls.__new__(cls, code, reason)
    StatusError.__init__(error, code, reason, message)
    return error


def ignore_not_found() -> contextlib.suppress:
    """Return a context manager that drops `NotFound`: `with ignore_not_found(): await client.delete(…)`."""
    return contextlib.suppress(NotFound)


def qualified(group: str, resource: str) -> str:
    """Return `machines.cluster.x-k8s.io`, or `pods` for the core group."""
    return f"{resource}.{group}" if group else resource


def _details(group: str, kind: str, name: str, causes: Sequence[dict[str, str]] = ()) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    if causes:
        details["causes"] = list(causes)
    return details


def not_found(group: str, resource: str, name: str) -> StatusError:
    return StatusError(
        404,
        "NotFound",
        f'{qualified(group, resource)} "{name}" not found',
        details=_details(group, resource, name),
    )


def no_such_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(group: str, resource: str, name: str) -> StatusError:
    return StatusError(
        409,
        "AlreadyExists",
        f'{qualified(group, resource)} "{name}" already exists',
        details=_details(group, resource, name),
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, resource: str, name: str, why: str = MODIFIED) -> StatusError:
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {qualified(group, resource)} "{name}": {why}',
        details=_details(group, resource, name),
    )


def apply_conflict(message: str, causes: Sequence[tuple[str, str]]) -> StatusError:
    """Return the conflict of a server-side apply with fields that others own; causes are (message, field) pairs."""
    listed = [{"reason": "FieldManagerConflict", "message": text, "field": field} for text, field in causes]
    return StatusError(409, "Conflict", message, details={"causes": listed})


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> StatusError:
    return StatusError(401, "Unauthorized", message, headers={"WWW-Authenticate": "Bearer"})


def forbidden_request(group: str, resource: str, name: str, why: str) -> StatusError:
    target = qualified(group, resource)
    quoted = f' "{name}"' if name else ""
    message = f"{target}{quoted} is forbidden: {why}" if target else f"forbidden: {why}"
    return StatusError(403, "Forbidden", message, details=_details(group, resource, name))


def invalid_object(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """Return a 422 that lists every bad field, in the message and as a cause each, up to a limit: the answer to a body
    with ten thousand errors must not be larger than the body.
    """
    causes: list[dict[str, str]] = []
    sentences: dict[str, None] = {}  # repeated messages appear once, though each is a cause
    size = 0
    for error in errors[:_MOST_CAUSES]:
        message, path = error.message, error.path or "<nil>"
        causes.append({"reason": error.kind, "message": message, "field": path})
        sentences[f"{path}: {message}"] = None
        size += len(message)
        if size > _MOST_TEXT:
            break
    if len(causes) < len(errors):
        sentences[f"and {len(errors) - len(causes)} more"] = None
    listed = next(iter(sentences)) if len(sentences) == 1 else "[" + ", ".join(sentences) + "]"
    target, name = qualified(group, kind), shortened(name)
    return StatusError(
        422,
        "Invalid",
        f'{target} "{name}" is invalid: {listed}',
        details=_details(group, kind, name, causes),
    )


def method_not_supported(group: str, resource: str, verb: str) -> StatusError:
    return StatusError(
        405,
        "MethodNotAllowed",
        f'{verb} is not supported on resources of kind "{qualified(group, resource)}"',
        details=_details(group, resource, ""),
    )


def not_acceptable(accepted: Iterable[str]) -> StatusError:
    return StatusError(
        406,
        "NotAcceptable",
        "only the following media types are accepted: " + ", ".join(accepted),
    )


def unsupported_media_type(given: Iterable[str]) -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(given),
    )


def gone(message: str, *, continue_token: str = "") -> StatusError:
    return StatusError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else None)


def too_large_revision(asked: int, current: int) -> StatusError:
    return StatusError(
        504,
        "Timeout",
        f"Too large resource version: {asked}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )


def too_many_requests(message: str, retry_after_seconds: int = 1) -> StatusError:
    return StatusError(
        429,
        "TooManyRequests",
        message,
        details={"retryAfterSeconds": retry_after_seconds},
        headers={"Retry-After": str(retry_after_seconds)},
    )


def entity_too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def service_unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)


def internal(message: str) -> StatusError:
    return StatusError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        details={"causes": [{"message": message}]},
    )


# -- errors of other servers ---------------------------------------------------------------------------------


class Unreachable(StatusError):
    """Missing answer: the server could not be reached, or the connection was lost before it answered.

    Whether a write was executed is unknown, unless `sent` is False.
    """

    def __init__(self, message: str, *, code: int = 503, sent: bool = True) -> None:
        super().__init__(code, "Timeout" if code == 504 else "ServiceUnavailable", message)
        self.sent = sent


class UnreadableWatch(StatusError):
    """Data in a watch that is no event. Changes may be lost: only a new list helps."""

    def __init__(self, why: str) -> None:
        super().__init__(500, "InternalError", f"the server's watch cannot be read: {why}")


class _Status(msgspec.Struct):
    kind: str = ""
    reason: str | None = None
    message: str | None = None
    code: int | None = None
    details: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


_read_status = msgspec.json.Decoder(_Status).decode
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_MOST_SHOWN = 500


def status_error(code: int, body: bytes, headers: dict[str, str] | None = None) -> StatusError:
    """Return the error in an answer of `code`: its Status, or the text of a proxy's answer.

    `code` 0 is for a Status in a watch, which comes without an HTTP code.
    """
    try:
        status = _read_status(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        status = _Status()
    if status.kind != "Status":
        text = " ".join(body[: 4 * _MOST_SHOWN].decode("utf-8", "replace").split())[:_MOST_SHOWN]
        message = f"the server answered {code}" + (f": {text}" if text else "")
        return StatusError(code, _REASONS.get(code, ""), message, headers=headers)
    code = code or status.code or 500
    return StatusError(
        code,
        status.reason or _REASONS.get(code, ""),
        status.message or f"the server answered {code} without a message",
        details=status.details,
        headers=headers,
        metadata=status.metadata,
    )
