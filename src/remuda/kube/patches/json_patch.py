"""JSON patch (RFC 6902), with the deviations of the library that kube-apiserver uses.

Those are: `replace` of a missing member adds it, an absent `value` is null, `test` treats null and missing as equal,
negative indices count from the end. Limits: 10,000 operations, 3 MiB or 50,000 values copied, pointers of 500 segments.
Every operation that does not apply gives the same message with code 422, as upstream does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from remuda.kube import KubeError, errors
from remuda.kube.cost import LIMITS, marks
from remuda.kube.errors import StatusError
from remuda.kube.go_text import decoder_type
from remuda.kube.patches.json_copy import copy_json, same_json

MAX_OPERATIONS = 10_000
_MAX_COPIED_BYTES = 3 * 1024 * 1024  # as upstream: copies of copies double an object with each operation
_MAX_SEGMENTS = 500

_is_index = re.compile(r"[+-]?[0-9]{1,18}").fullmatch


class _DoesNotApply(KubeError):
    """Failure of one operation. The message is for debugging and is not sent to clients."""


def apply_json_patch(original: dict[str, Any], patch: Any, *, in_place: bool = False) -> dict[str, Any]:
    operations = _checked(patch)
    document = _Document(original if in_place else copy_json(original))
    try:
        for operation in operations:
            document.apply(operation)
    except (_DoesNotApply, RecursionError) as why:
        raise _unprocessable() from why
    result = document.root
    if type(result) is not dict:
        raise _unprocessable()
    return result


def _unprocessable() -> StatusError:
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def _checked(patch: Any) -> list[dict[str, Any]]:
    """Return the operations, checked to be objects whose op, path and from are strings."""
    if patch is None:
        return []
    if type(patch) is not list:
        raise _undecodable(patch, "Go value of type []handlers.jsonPatchOp")
    for operation in patch:
        if operation is not None and type(operation) is not dict:
            raise _undecodable(operation, "Go value of type handlers.jsonPatchOp")
        for field in ("op", "path", "from"):
            value = (operation or {}).get(field)
            if value is not None and type(value) is not str:
                raise _undecodable(value, f"Go struct field jsonPatchOp.{field} of type string")
    if len(patch) > MAX_OPERATIONS:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            "Request entity too large: "
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}",
        )
    return [operation or {} for operation in patch]


def _undecodable(value: Any, wanted: str) -> StatusError:
    return errors.bad_request(f"error decoding patch: json: cannot unmarshal {decoder_type(value)} into {wanted}")


class _Document:
    def __init__(self, root: Any) -> None:
        self.root = root
        self._copied = 0
        self._copied_values = 0

    def apply(self, operation: dict[str, Any]) -> None:
        act = _ACTIONS.get(operation.get("op") or "")
        if act is None:
            raise _DoesNotApply(f"unexpected operation {operation.get('op')!r}")
        act(self, operation)

    def _find(self, pointer: str) -> tuple[Any, str]:
        """Return the container that a pointer leads into, and the last segment."""
        segments = pointer.split("/")
        if len(segments) < 2 or len(segments) > _MAX_SEGMENTS:
            raise _DoesNotApply(f"no such path {pointer!r}")
        node = self.root
        if type(node) is not dict and type(node) is not list:  # an earlier operation replaced the whole object
            raise _DoesNotApply(f"no such path {pointer!r}")
        for segment in segments[1:-1]:
            node = _get(node, _unescape(segment))
            if type(node) is not dict and type(node) is not list:
                raise _DoesNotApply(f"no such path {pointer!r}")
        return node, _unescape(segments[-1])

    def add(self, operation: dict[str, Any]) -> None:
        node, key = self._find(_pointer(operation, "path"))
        _insert(node, key, copy_json(operation.get("value")))

    def remove(self, operation: dict[str, Any]) -> None:
        node, key = self._find(_pointer(operation, "path"))
        _remove(node, key)

    def replace(self, operation: dict[str, Any]) -> None:
        pointer = _pointer(operation, "path")
        value = copy_json(operation.get("value"))
        if pointer == "":
            self.root = value
            return
        node, key = self._find(pointer)
        if type(node) is dict:
            node[key] = value
        else:
            node[_index(key, len(node))] = value

    def move(self, operation: dict[str, Any]) -> None:
        node, key = self._find(_pointer(operation, "from"))
        value = _get(node, key)
        _remove(node, key)
        node, key = self._find(_pointer(operation, "path"))
        _insert(node, key, value)

    def copy(self, operation: dict[str, Any]) -> None:
        node, key = self._find(_pointer(operation, "from"))
        value = _get(node, key)
        if value is not None:
            text = msgspec.json.encode(value)
            self._copied += len(text)
            # Few bytes may be many values: copies of copies of empty lists.
            self._copied_values += marks(text) if len(text) > 2 else 1
        if self._copied > _MAX_COPIED_BYTES or self._copied_values > LIMITS.values:
            raise _DoesNotApply("the copies grow too large")
        node, key = self._find(_pointer(operation, "path"))
        _insert(node, key, copy_json(value))

    def test(self, operation: dict[str, Any]) -> None:
        pointer = _pointer(operation, "path")
        if pointer == "":
            found = self.root
        else:
            node, key = self._find(pointer)
            found = _get(node, key)
        if not same_json(found, operation.get("value")):
            raise _DoesNotApply(f"testing value {pointer} failed")


_ACTIONS: dict[str, Callable[[_Document, dict[str, Any]], None]] = {
    "add": _Document.add,
    "remove": _Document.remove,
    "replace": _Document.replace,
    "move": _Document.move,
    "copy": _Document.copy,
    "test": _Document.test,
}


def _pointer(operation: dict[str, Any], field: str) -> str:
    pointer = operation.get(field)
    if pointer is None:
        raise _DoesNotApply(f"operation without {field}")
    return str(pointer)


def _unescape(segment: str) -> str:
    return segment.replace("~1", "/").replace("~0", "~") if "~" in segment else segment


def _index(key: str, length: int) -> int:
    if not _is_index(key):
        raise _DoesNotApply(f"{key!r} is not an index")
    index = int(key)
    if not -length <= index < length:
        raise _DoesNotApply(f"no element {index} among {length}")
    return index % length


def _get(node: Any, key: str) -> Any:
    return node.get(key) if type(node) is dict else node[_index(key, len(node))]


def _remove(node: Any, key: str) -> None:
    if type(node) is list:
        del node[_index(key, len(node))]
    elif key in node:
        del node[key]
    else:
        raise _DoesNotApply(f"no member {key!r} to remove")


def _insert(node: Any, key: str, value: Any) -> None:
    if type(node) is dict:
        node[key] = value
    elif key == "-":
        node.append(value)
    else:
        node.insert(_index(key, len(node) + 1), value)


def create_json_patch(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, Any]]:
    """Return operations that turn `before` into `after`. Different members are listed one by one; lists are replaced
    whole.
    """
    return list(_differences("", before, after))


def _differences(path: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in before:
        if key not in after:
            yield {"op": "remove", "path": f"{path}/{_escape(key)}"}
    for key, value in after.items():
        here = f"{path}/{_escape(key)}"
        if key not in before:
            yield {"op": "add", "path": here, "value": copy_json(value)}
        elif type(value) is dict and type(before[key]) is dict:
            yield from _differences(here, before[key], value)
        elif not same_json(before[key], value):
            yield {"op": "replace", "path": here, "value": copy_json(value)}


def _escape(segment: str) -> str:
    return segment.replace("~", "~0").replace("/", "~1")
