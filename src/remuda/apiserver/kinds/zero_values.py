"""Zero values of built-in kinds: the fields that an object has before anybody has set anything.

The real server holds built-in kinds in structs, and a struct is never quite empty: nested structs that are not
pointers are written as `{}`, and fields that are always written as null, zero or an empty string. Nobody owns those.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.kinds.canonical_form import ALWAYS_WRITTEN, ZERO, flattened
from remuda.apiserver.kinds.idl import Form, MessageType, resolve
from remuda.apiserver.resource import Obj

_ABSENT: Any = object()


def blank(type_: MessageType) -> Obj:
    """Without static defaults, which belong to the writer. Metadata is empty: the server fills it in."""
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
