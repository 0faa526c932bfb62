"""Declaration of a built-in kind: one call of `declare` with its names, columns and behaviour beyond its schema.

`Rules` are a kind's own functions. `declare` joins them with the behaviour of every built-in kind (the stored form of
`canonical_form.py`) into the `Behaviour` that the registry runs.

`declare` also computes the zero value of a kind: the fields of an object in which nothing was set. kube-apiserver
decodes built-in kinds into structs, and encodes nested non-pointer structs as `{}` and fields without omitempty as
null, zero or an empty string. No field manager owns those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remuda.apiserver.kinds import idl
from remuda.apiserver.kinds.canonical_form import ALWAYS_WRITTEN, ZERO, flattened, normalizer
from remuda.apiserver.kinds.idl import Form, MessageType, resolve
from remuda.apiserver.resource import Behaviour, Obj, Resource
from remuda.kube import errors
from remuda.kube.errors import FieldError
from remuda.kube.objects import value_at
from remuda.kube.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Behaviour of a kind beyond its schema. `default` must be idempotent."""

    default: Callable[[Obj], None] | None = None
    create: Callable[[Obj], None] | None = None
    update: Callable[[Obj, Obj], None] | None = None
    validate: Callable[[Obj], list[FieldError]] | None = None
    validate_create: Callable[[Obj], list[FieldError]] | None = None
    validate_update: Callable[[Obj, Obj], list[FieldError]] | None = None
    validate_status: Callable[[Obj, Obj], list[FieldError]] | None = None
    validate_name: Callable[[str, bool], list[str]] | None = None
    graceful_seconds: Callable[[Obj, int | None], int | None] | None = None
    delete: Callable[[Obj], None] | None = None
    is_held: Callable[[Obj], bool] | None = None


# Field of `Behaviour` that each rule fills unchanged.
_DIRECT = {
    "create": "prepare_create",
    "update": "prepare_update",
    "delete": "prepare_delete",
    "validate": "validate",
    "validate_create": "validate_create",
    "validate_update": "validate_update",
    "validate_status": "validate_status",
    "validate_name": "validate_name",
    "graceful_seconds": "graceful_seconds",
    "is_held": "is_held",
}
NO_RULES = Rules()


# In most built-in kinds, a write to /status may change labels and annotations; in these groups it may not.
_STRICT_GROUPS = frozenset(
    ("admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "storage.k8s.io")
)
# In these groups, finalizers need no domain, as in custom resources.
_PLAIN_FINALIZERS = frozenset(
    (
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "node.k8s.io",
    )
)


def declare(group: str, version: str, kind: str, plural: str, rules: Rules = NO_RULES, **more: Any) -> Resource:
    type_ = idl.message(group, version, kind)
    more.setdefault("status_leaves", ("metadata", "spec") if group in _STRICT_GROUPS else ("spec",))
    more.setdefault("plain_finalizers", group in _PLAIN_FINALIZERS)
    given = {field: rule for name, field in _DIRECT.items() if (rule := getattr(rules, name)) is not None}
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        list_kind=f"{kind}List",
        schema=idl.schema_of(type_),
        blank=blank(type_),
        behaviour=Behaviour(default=_default(normalizer(type_), rules.default), **given),
        **more,
    )


def schema(group: str, version: str, kind: str) -> Schema:
    """Return the schema of a kind that is not stored, such as the body of a subresource."""
    return idl.schema_of(idl.message(group, version, kind))


_ABSENT: Any = object()


def blank(type_: MessageType) -> Obj:
    """Return the zero value without static defaults, which the writer owns. Metadata is empty: the server fills it."""
    parts = {field.name: _blank_value(field.form) for field in flattened(type_)}
    return {name: value for name, value in parts.items() if value is not _ABSENT}


def _blank_value(form: Form) -> Any:
    target = resolve(form.type)
    if isinstance(target, MessageType) and not form.container and not form.pointer:
        if form.omitzero:
            return _ABSENT
        return {} if target.ref == "ObjectMeta" else blank(target)
    if form.pointer or form.container or form.type == "bytes":
        return None if form.always else _ABSENT
    if form.omitzero or not (form.always or form.type in ALWAYS_WRITTEN):
        return _ABSENT
    return "" if isinstance(target, tuple) else ZERO.get(form.type)


def _default(normalize: Callable[[Obj], None], own: Callable[[Obj], None] | None) -> Callable[[Obj], None]:
    if own is None:
        return normalize

    def default(obj: Obj) -> None:
        normalize(obj)
        own(obj)

    return default


def unchanged(new: Obj, old: Obj, *path: str) -> list[FieldError]:
    """Return the error for a change of an immutable field."""
    now, before = value_at(new, *path), value_at(old, *path)
    return [] if now == before else [errors.invalid(".".join(path), now, IMMUTABLE)]


IMMUTABLE = "field is immutable"


def non_negative(value: Any, path: str) -> list[FieldError]:
    """Return the error for a negative count; the count may be absent."""
    if isinstance(value, int) and value < 0:
        return [errors.invalid(path, value, "must be greater than or equal to 0")]
    return []


def one_of(value: Any, path: str, supported: tuple[str, ...]) -> list[FieldError]:
    """Return the error for a value that is not allowed; the value may be absent."""
    return [] if value is None or value in supported else [errors.not_supported(path, value, supported)]


def join_list(holder: Obj, one: str, many: str, key: str = "") -> None:
    """Make a field equal to the first item of its list: both spell the same fact. The field wins if they differ."""
    first = holder.get(many) or []
    listed = (first[0].get(key, "") if key else first[0]) if first else ""
    given = holder.get(one)
    if given and given != listed:
        holder[many] = [{key: given}] if key else [given]
    elif not given and listed:
        holder[one] = listed
