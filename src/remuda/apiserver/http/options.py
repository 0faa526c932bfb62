"""Options of a verb, from the query (and the body of deletes), with kube-apiserver's checks.

A value of the wrong type is a 400. A valid value that is not allowed is a 422 that names the option. Unknown parameters
are ignored, as everywhere in Kubernetes.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from remuda.apiserver.http.decode import ProtobufDecoder, Unreadable, decode_json
from remuda.apiserver.http.negotiate import JSON, PROTOBUF, YAML, body_media_type
from remuda.apiserver.http.routes import is_true
from remuda.apiserver.http.yaml_body import YamlError, decode_yaml
from remuda.apiserver.kinds.protobuf import Malformed, Unfit
from remuda.apiserver.registry.calls import (
    DeleteOptions,
    FieldValidation,
    ListOptions,
    PatchKind,
    WatchOptions,
    WriteOptions,
)
from remuda.apiserver.resource import Obj
from remuda.kube.errors import (
    FieldError,
    StatusError,
    bad_request,
    forbidden,
    invalid,
    invalid_object,
    not_supported,
    required,
    too_long,
)
from remuda.kube.web import Query, Request

_MANAGER_BYTES = 128
_FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_POLICIES = ("Foreground", "Background", "Orphan", "nil")
_MATCHES = ("Exact", "NotOlderThan")
_DRY_RUN_ALL = "All"
_META = "meta.k8s.io"
_INT64 = 2**63


def _first(query: Query, key: str) -> str:
    values = query.get(key)
    return values[0] if values else ""


def _integer(query: Query, key: str) -> int | None:
    values = query.get(key)
    if not values:
        return None
    text = values[0]
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()):
        raise bad_request(f'strconv.ParseInt: parsing "{text[:256]}": invalid syntax')
    number = int(text) if len(text) < 32 else _INT64
    if not -_INT64 <= number < _INT64:
        raise bad_request(f'strconv.ParseInt: parsing "{text[:256]}": value out of range')
    return number


def _boolean(query: Query, key: str) -> bool | None:
    values = query.get(key)
    return is_true(values[0]) if values else None


def _refuse(kind: str, errors: list[FieldError]) -> None:
    if errors:
        raise invalid_object(_META, kind, "", errors)


# -- lists and watches -------------------------------------------------------------------------------------------


def list_options(request: Request) -> ListOptions:
    query = request.query
    if not query:
        return ListOptions()
    limit = _integer(query, "limit") or 0
    _integer(query, "timeoutSeconds")
    options = ListOptions(
        label_selector=_first(query, "labelSelector"),
        field_selector=_first(query, "fieldSelector"),
        limit=max(limit, 0),
        continue_token=_first(query, "continue"),
        resource_version=_first(query, "resourceVersion"),
        resource_version_match=_first(query, "resourceVersionMatch"),
    )
    _refuse("ListOptions", _list_errors(options, "sendInitialEvents" in query))
    return options


def _list_errors(options: ListOptions, initial_events: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    match, path = options.resource_version_match, "resourceVersionMatch"
    if match:
        if not options.resource_version:
            errors.append(forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if options.continue_token:
            errors.append(forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in _MATCHES:
            errors.append(not_supported(path, match, (*_MATCHES, "")))
        if match == "Exact" and options.resource_version == "0":
            errors.append(forbidden(path, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if initial_events:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return errors


def watch_options(request: Request) -> WatchOptions:
    query = request.query
    _integer(query, "limit")
    options = WatchOptions(
        label_selector=_first(query, "labelSelector"),
        field_selector=_first(query, "fieldSelector"),
        resource_version=_first(query, "resourceVersion"),
        resource_version_match=_first(query, "resourceVersionMatch"),
        bookmarks=_boolean(query, "allowWatchBookmarks") or False,
        send_initial_events=_boolean(query, "sendInitialEvents"),
        timeout_seconds=max(_integer(query, "timeoutSeconds") or 0, 0),
    )
    _default_initial_events(options)
    _refuse("ListOptions", _watch_errors(options, bool(_first(query, "continue"))))
    return options


def _default_initial_events(options: WatchOptions) -> None:
    """Set the default for initial events. A watch without a revision, or from 0, has always started with the existing
    objects, so it counts as a request for initial events. With bookmarks allowed, a bookmark marks their end.
    """
    unstated = options.send_initial_events is None and not options.resource_version_match
    if unstated and options.resource_version in ("", "0"):
        options.send_initial_events = True
        options.resource_version_match = "NotOlderThan"


def _watch_errors(options: WatchOptions, continues: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    match, path = options.resource_version_match, "resourceVersionMatch"
    if options.send_initial_events is not None and match != "NotOlderThan":
        errors.append(forbidden(path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if match:
        if options.send_initial_events is None:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            errors.append(forbidden(path, why))
        if match != "NotOlderThan":
            errors.append(not_supported(path, match, ("NotOlderThan",)))
        if continues:
            errors.append(forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
    return errors


# -- writes ------------------------------------------------------------------------------------------------------


def write_options(request: Request, kind: Literal["CreateOptions", "UpdateOptions"]) -> WriteOptions:
    query = request.query
    manager = _first(query, "fieldManager")
    errors = _write_errors(query, manager)
    _refuse(kind, errors)
    return _write_options(request, query, manager)


def patch_options(request: Request, patch: PatchKind) -> WriteOptions:
    query = request.query
    manager = _first(query, "fieldManager")
    errors: list[FieldError] = []
    force = _boolean(query, "force")
    if patch == "apply":
        if not manager:
            errors.append(required("fieldManager", "is required for apply patch"))
    elif force is not None:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    errors += _write_errors(query, manager)
    _refuse("PatchOptions", errors)
    options = _write_options(request, query, manager)
    options.force = force or False
    return options


def _write_options(request: Request, query: Query, manager: str) -> WriteOptions:
    validation = _first(query, "fieldValidation") or "Warn"
    return WriteOptions(
        field_manager=manager or manager_of_agent(request.header(b"user-agent")),
        field_validation=cast(FieldValidation, validation),
        dry_run=bool(query.get("dryRun")),
    )


def _write_errors(query: Query, manager: str) -> list[FieldError]:
    if not query:
        return []
    errors: list[FieldError] = []
    if manager:
        errors += _manager_errors(manager)
    errors += _dry_run_errors(query.get("dryRun", []))
    validation = _first(query, "fieldValidation")
    if validation not in _FIELD_VALIDATIONS:
        errors.append(not_supported("fieldValidation", validation, _FIELD_VALIDATIONS))
    return errors


def _manager_errors(manager: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(manager.encode("utf-8", "replace")) > _MANAGER_BYTES:
        errors.append(too_long("fieldManager", _MANAGER_BYTES))
    at = 0
    for char in manager:
        if not _is_printable(char):
            shown = f"U+{ord(char):04X}" + (f" '{char}'" if char.isprintable() else "")
            errors.append(invalid("fieldManager", manager, f"invalid character {shown} (at position {at})"))
        at += len(char.encode("utf-8", "replace"))
    return errors


def _is_printable(char: str) -> bool:
    """Return whether a character is printable; among spaces, only the ASCII space is."""
    return char.isprintable()


def _dry_run_errors(values: list[str]) -> list[FieldError]:
    if all(value == _DRY_RUN_ALL for value in values):
        return []
    return [not_supported("dryRun", values, (_DRY_RUN_ALL,))]


def manager_of_agent(agent: str) -> str:
    """Return the field manager of a write that names none: the part of the User-Agent before its first slash."""
    name = agent.partition("/")[0]
    if name.isascii() and name.isprintable() and len(name) <= _MANAGER_BYTES:
        return name
    printable = "".join(char for char in name if _is_printable(char))
    return printable.encode("utf-8", "replace")[:_MANAGER_BYTES].decode("utf-8", "ignore")


# -- deletes -----------------------------------------------------------------------------------------------------


def delete_options(request: Request, body: bytes, protobuf: ProtobufDecoder | None = None) -> DeleteOptions:
    """Read the options from the body if there is one, else from the query: never from both."""
    raw = _options_of_body(request, body, protobuf) if body else _options_of_query(request.query)
    policy = _text_of(raw, "propagationPolicy")
    orphan = _typed(raw, "orphanDependents", bool)
    dry_run = _typed(raw, "dryRun", list) or []
    _refuse("DeleteOptions", _delete_errors(policy, orphan, dry_run))
    if policy is None and orphan is not None:
        policy = "Orphan" if orphan else "Background"
    preconditions = _typed(raw, "preconditions", dict) or {}
    return DeleteOptions(
        grace_period_seconds=_typed(raw, "gracePeriodSeconds", int),
        propagation_policy=cast(Any, policy or ""),
        precondition_uid=_text_of(preconditions, "uid"),
        precondition_resource_version=_text_of(preconditions, "resourceVersion"),
        dry_run=bool(dry_run),
    )


def _delete_errors(policy: str | None, orphan: bool | None, dry_run: list[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    if orphan is not None and policy is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, why))
    if policy is not None and policy not in _POLICIES[:3]:
        errors.append(not_supported("propagationPolicy", policy, _POLICIES))
    return errors + _dry_run_errors(dry_run)


def _options_of_body(request: Request, body: bytes, protobuf: ProtobufDecoder | None) -> Obj:
    media = body_media_type(request, (JSON, YAML) if protobuf is None else (JSON, YAML, PROTOBUF))
    if media == PROTOBUF and protobuf is not None:
        return _checked_options(_options_of_protobuf(body, protobuf))
    try:
        value = decode_yaml(body)[0] if media == YAML and body[:1] != b"{" else decode_json(body)
    except (Unreadable, YamlError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    return _checked_options(value)


def _options_of_protobuf(body: bytes, decode: ProtobufDecoder) -> Obj:
    try:
        return decode(body, "v1", "DeleteOptions")
    except (Malformed, Unfit) as error:
        raise bad_request(str(error)) from None


def _checked_options(value: Any) -> Obj:
    if not isinstance(value, dict):
        raise bad_request("decoded object cannot be converted to DeleteOptions")
    kind = value.get("kind")
    if kind not in (None, "", "DeleteOptions"):
        raise bad_request("decoded object cannot be converted to DeleteOptions")
    return value


def _options_of_query(query: Query) -> Obj:
    if not query:
        return {}
    raw: Obj = {}
    for key in ("uid", "resourceVersion"):
        if _first(query, key):
            raw.setdefault("preconditions", {})[key] = _first(query, key)
    for key, read in (("gracePeriodSeconds", _integer), ("orphanDependents", _boolean)):
        value = read(query, key)
        if value is not None:
            raw[key] = value
    if "propagationPolicy" in query:
        raw["propagationPolicy"] = _first(query, "propagationPolicy")
    if "dryRun" in query:
        raw["dryRun"] = query["dryRun"]
    return raw


def _text_of(raw: Obj, key: str) -> str | None:
    return cast("str | None", _typed(raw, key, str))


def _typed(raw: Obj, key: str, wanted: type) -> Any:
    value = raw.get(key)
    if value is None or (isinstance(value, wanted) and not (wanted is int and isinstance(value, bool))):
        return value
    raise _wrong_type(key, value, wanted)


_GO_TYPES = {int: "int64", str: "string", bool: "bool", list: "[]string", dict: "Preconditions"}


def _wrong_type(key: str, value: Any, wanted: type) -> StatusError:
    given = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}.get(type(value), "object")
    return bad_request(
        f"json: cannot unmarshal {given} into Go struct field DeleteOptions.{key} of type {_GO_TYPES[wanted]}"
    )
