"""Canonical form in which kube-apiserver stores and returns an object of a built-in kind.

kube-apiserver decodes JSON into structs and encodes the structs again. Clients see the effects: nulls, empty lists and
empty strings vanish, `status: {}` and a condition's `lastProbeTime: null` appear, quantities and times get one
spelling, and static defaults are filled in. `normalizer` compiles these rules from the declaration of a message into
one walk over the object, in place.

Undeclared fields and values of a wrong type are left alone: the decoder handles them. Only quantities are checked here,
because only this module parses them: an invalid one raises the BadRequest of the real decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from remuda.apiserver import ApiServerError
from remuda.apiserver.kinds.idl import Form, IdlField, MessageType, message, resolve
from remuda.apiserver.resource import Obj
from remuda.kube import clock
from remuda.kube.errors import StatusError, bad_request
from remuda.kube.quantity import Quantity, QuantityError, canonical_quantity
from remuda.kube.schema import UNSET

_Step = Callable[[Obj, str, Any], None]
_Spelling = Callable[[Any], Any]

# Value of a non-pointer field that was not set.
ZERO: dict[str, Any] = {
    "string": "",
    "int32": 0,
    "int64": 0,
    "bool": False,
    "double": 0,
    "Quantity": "0",
    "IntOrString": 0,
    "Duration": "0s",
}
# These fields are no pointers, yet are written even when zero, because Go's "omitempty" does not apply to structs.
ALWAYS_WRITTEN = frozenset(("Time", "MicroTime", "Quantity", "IntOrString", "Duration", "RawExtension"))
_DROPPED_WHEN_ZERO = frozenset(("string", "int32", "int64", "bool", "double"))


class Normalizer:
    """Walk over one message. Created empty and filled on first use, because messages contain each other."""

    __slots__ = ("_fills", "_message", "_steps")

    def __init__(self, message: MessageType) -> None:
        self._message = message
        self._steps: dict[str, _Step] | None = None
        self._fills: tuple[tuple[str, Callable[[], Any]], ...] = ()

    def __call__(self, obj: Obj) -> None:
        steps = self._steps
        if steps is None:
            steps = self._compile()
        for key, value in list(obj.items()):
            step = steps.get(key)
            if step is not None:
                step(obj, key, value)
        for key, make in self._fills:
            if key not in obj:
                obj[key] = make()

    def new(self) -> Obj:
        obj: Obj = {}
        self(obj)
        return obj

    def knows(self, key: str) -> bool:
        return key in (self._steps if self._steps is not None else self._compile())

    def _compile(self) -> dict[str, _Step]:
        steps: dict[str, _Step] = {}
        fills: list[tuple[str, Callable[[], Any]]] = []
        # Other groups go through protobuf, which does not distinguish an empty list from a missing one.
        keeps_empty = self._message.file == "apiextensions"
        for field in flattened(self._message):
            make = _filler(field.form)
            if make is not None:
                fills.append((field.name, make))
            steps[field.name] = _step(field.form, keeps_empty)
        self._fills = tuple(fills)
        self._steps = steps
        return steps


_normalizers: dict[str, Normalizer] = {}


def _normalizer(type_: MessageType) -> Normalizer:
    found = _normalizers.get(type_.ref)
    if found is None:
        found = _normalizers[type_.ref] = Normalizer(type_)
    return found


def normalizer(type_: MessageType) -> Callable[[Obj], None]:
    """Return the function that brings an object of this message into its stored form, in place."""
    walk = _normalizer(type_)

    def normalize(obj: Obj) -> None:
        try:
            walk(obj)
        except RecursionError:
            raise bad_request("the object is nested too deeply") from None
        except _Malformed as why:
            raise _not_decodable(type_.name, obj, str(why)) from None

    return normalize


class _Malformed(ApiServerError):
    """Value that no struct field can hold."""


def _not_decodable(kind: str, obj: Obj, why: str) -> StatusError:
    version = str(obj.get("apiVersion", "")).rpartition("/")[2]
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def flattened(type_: MessageType) -> list[IdlField]:
    fields = []
    for field in type_.fields:
        inlined = resolve(field.form.type) if field.form.inline else None
        fields += flattened(inlined) if isinstance(inlined, MessageType) else [field]
    return fields


def _filler(form: Form) -> Callable[[], Any] | None:
    """Return a function that creates the value of an absent field, if the server stores one for it."""
    target = resolve(form.type)
    if isinstance(target, MessageType) and not form.container:
        # The registry fills in the metadata of the object itself. A template's metadata may be missing here, as it may
        # be empty upstream.
        if form.default is not UNSET or not form.pointer:
            return _normalizer(target).new
        return _none if form.always else None
    if form.default is not UNSET:
        default = form.default
        is_omitted = not default and not form.pointer and not form.always
        return None if is_omitted else lambda: default
    if form.pointer or form.container or form.type == "bytes":
        return _none if form.always else None
    if form.omitzero:
        return None
    if form.always or form.type in ALWAYS_WRITTEN:
        zero = "" if isinstance(target, tuple) else ZERO.get(form.type)
        return lambda: zero
    return None


def _none() -> None:
    return None


def _step(form: Form, keeps_empty: bool) -> _Step:
    target = resolve(form.type)
    if form.container:
        return _container_step(form, target, keeps_empty)
    if isinstance(target, MessageType):
        return _message_step(form, target)
    spelling = _SPELLINGS.get(form.type)
    if spelling is not None:
        return _spelled(spelling, drop_empty=form.type == "bytes" and not form.always)
    scalar = form.type in _DROPPED_WHEN_ZERO or isinstance(target, tuple)
    if not form.pointer and scalar:
        return _drop_null if form.always and form.default is UNSET else _drop_zero
    return _drop_zero if isinstance(target, str) else _drop_null


# Defaults and always-written fields are added again after this.
def _drop_null(obj: Obj, key: str, value: Any) -> None:
    if value is None:
        del obj[key]


def _drop_zero(obj: Obj, key: str, value: Any) -> None:
    if not value and not isinstance(value, dict):
        del obj[key]


def _spelled(spelling: _Spelling, *, drop_empty: bool) -> _Step:
    def step(obj: Obj, key: str, value: Any) -> None:
        if value is None or (drop_empty and value == ""):
            del obj[key]
        else:
            changed = spelling(value)
            if changed is not value:
                obj[key] = changed

    return step


def _message_step(form: Form, target: MessageType) -> _Step:
    walk = _normalizer(target)
    pointer = form.pointer

    def step(obj: Obj, key: str, value: Any) -> None:
        if type(value) is dict:
            walk(value)
        elif value is None:
            if pointer:
                del obj[key]
            else:
                obj[key] = walk.new()

    return step


def _container_step(form: Form, target: Any, keeps_empty: bool) -> _Step:
    inner: _Spelling | None = _amount_form if form.type == "Quantity" else _SPELLINGS.get(form.type)
    if isinstance(target, MessageType) and not (target.file == "meta" and target.name == "ManagedFieldsEntry"):
        walk = _normalizer(target)

        def inner(value: Any) -> Any:
            if type(value) is dict:
                walk(value)
                return value
            return walk.new() if value is None else value

    drop_empty = not (form.always and keeps_empty)
    each = None if inner is None else _each_item(inner) if form.container == "list" else _each_value(inner)

    def step(obj: Obj, key: str, value: Any) -> None:
        if value is None or (drop_empty and not value):
            del obj[key]
        elif each is not None:
            each(value)

    return step


def _each_item(inner: _Spelling) -> Callable[[Any], None]:
    def each(value: Any) -> None:
        if type(value) is list:
            for index, item in enumerate(value):
                changed = inner(item)
                if changed is not item:
                    value[index] = changed

    return each


def _each_value(inner: _Spelling) -> Callable[[Any], None]:
    def each(value: Any) -> None:
        if type(value) is dict:
            for key, item in value.items():
                changed = inner(item)
                if changed is not item:
                    value[key] = changed

    return each


def _quantity_form(value: Any) -> Any:
    return _written(value, canonical_quantity)


def _amount_form(value: Any) -> Any:
    """Return the canonical form of an amount in a map of resources, which is rounded up to thousandths."""
    return _written(value, lambda given: str(Quantity.parse(given).rounded_up_to_milli()))


def _written(value: Any, write: Callable[[str | int | float], str]) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value if value is not None else "0"
    try:
        return write(value)
    except QuantityError as why:
        raise _Malformed(str(why)) from None


def _bytes_form(value: Any) -> Any:
    """Remove line breaks from base64, which kube-apiserver accepts and does not return."""
    if not isinstance(value, str):
        return "" if value is None else value
    return value.replace("\r", "").replace("\n", "") if "\n" in value or "\r" in value else value


def _time_form(value: Any) -> Any:
    if not isinstance(value, str) or (len(value) == 20 and value[19] == "Z"):
        return value
    return _rewritten(value, clock.rfc3339)


def _micro_time_form(value: Any) -> Any:
    if not isinstance(value, str) or (len(value) == 27 and value[26] == "Z"):
        return value
    return _rewritten(value, clock.rfc3339_micro)


def _rewritten(value: str, write: Callable[[float], str]) -> str:
    try:
        return write(clock.parse(value))
    except (ValueError, OverflowError):
        return value  # the decoder has already reported it


@cache
def _json_schema() -> Normalizer:
    return _normalizer(message("apiextensions.k8s.io", "v1", "JSONSchemaProps"))


def _nested_schema_form(value: Any) -> Any:
    """Return the form of a schema, a list of schemas, or another value. Unknown keywords are dropped silently, because
    upstream's decoder of these fields is not strict.
    """
    if type(value) is dict:
        walk = _json_schema()
        for key in [key for key in value if not walk.knows(key)]:
            del value[key]
        walk(value)
    elif type(value) is list:
        for item in value:
            _nested_schema_form(item)
    return value


_SPELLINGS: dict[str, _Spelling] = {
    "Quantity": _quantity_form,
    "bytes": _bytes_form,
    "Time": _time_form,
    "MicroTime": _micro_time_form,
    "JSONSchemaPropsOrBool": _nested_schema_form,
    "JSONSchemaPropsOrArray": _nested_schema_form,
    "JSONSchemaPropsOrStringArray": _nested_schema_form,
}
