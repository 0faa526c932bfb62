"""Bodies made to cost, generated from the schemas that a server publishes: wide, deep, long, and many of everything.

Pure, and random by the source that it is given. An operation is a path to which objects are posted. A growth says what
of the object becomes large, and how: a text, a list, a map, or a part without a schema.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

Json = dict[str, Any]
Path = tuple[str, ...]

MOST_BYTES = 2_950_000
_DEEPEST = 8
_ITEM, _VALUE = "[]", "{}"
_SIZES = (1_000, 3_900, 9_900, 100_000)  # elements of a list, or members of a map
_LENGTHS = (60_000, MOST_BYTES)  # of a text
_DETAILS = (0, 1, 2)  # of each element
_LONG_NAME = 3  # instead of these: one member, whose name is long
_TEXTS = ("a=b,", "a in (b),", "a", "/", "0", "\n", "é", '{"')
_NAMES = ("a", "a|", "/", "(?i)\\pL")
_SCALARS: dict[str, Any] = {"integer": 1, "number": 1, "boolean": True}
PATCHES = ("merge-patch+json", "strategic-merge-patch+json", "json-patch+json", "apply-patch+yaml")


class Operation(NamedTuple):
    """Creation of objects of one kind, or of what a subresource takes."""

    path: str
    kind: Json  # apiVersion and kind
    schema: Json
    schemas: Json  # that it refers to

    def resolve(self, schema: Json) -> Json:
        while True:
            refs = [schema, *schema.get("allOf", ())]
            ref = next((one["$ref"] for one in refs if "$ref" in one), None)
            if ref is None:
                return schema
            schema = self.schemas[ref.rpartition("/")[2]]

    def at(self, place: Path) -> Json:
        """Return the schema of a place."""
        schema = self.resolve(self.schema)
        for name in place:
            if name == _ITEM:
                schema = schema.get("items", {})
            elif name == _VALUE:
                schema = schema["additionalProperties"]
            else:
                schema = schema["properties"][name]
            schema = self.resolve(schema)
        return schema


class Growth(NamedTuple):
    """What grows, and how."""

    place: Path
    size: int
    detail: int = 0
    text: str = "a"


class Candidate(NamedTuple):
    """One request: its media type is that of a patch, or of a new object."""

    body: bytes
    about: str
    media: str = "application/json"


def operations(document: Json) -> Iterator[Operation]:
    """Yield what can be posted, of the OpenAPI 3 document of one group and version."""
    schemas = document.get("components", {}).get("schemas", {})
    for path, methods in document.get("paths", {}).items():
        if "post" not in methods:
            continue
        (content, *_) = methods["post"]["requestBody"]["content"].values()
        kind = methods["post"]["x-kubernetes-group-version-kind"]
        version = f"{kind['group']}/{kind['version']}" if kind["group"] else kind["version"]
        filled = path.replace("{namespace}", "default").replace("{name}", "default")
        yield Operation(filled, {"apiVersion": version, "kind": kind["kind"]}, content["schema"], schemas)


def growths(operation: Operation) -> list[Growth]:
    """Return every way in which an object can grow, at every place down to a depth."""
    found: list[Growth] = []

    def walk(schema: Json, path: Path, above: tuple[int, ...]) -> None:
        schema = operation.resolve(schema)
        if id(schema) in above or len(path) > _DEEPEST:
            return
        above = (*above, id(schema))
        kind = schema.get("type")
        if kind == "array":
            found.extend(Growth(path, size, detail) for size in _SIZES for detail in _DETAILS)
            walk(schema.get("items", {}), (*path, _ITEM), above)
        elif schema.get("properties"):
            for name, inner in schema["properties"].items():
                if path or name not in ("apiVersion", "kind", "status"):
                    walk(inner, (*path, name), above)
        elif kind not in _SCALARS:
            if kind == "string":
                found.extend(Growth(path, size // len(text.encode()), 0, text) for size in _LENGTHS for text in _TEXTS)
            else:
                found.extend(Growth(path, size, detail) for size in _SIZES for detail in _DETAILS)
                found.extend(
                    Growth(path, size // len(name), _LONG_NAME, name) for size in (200, *_LENGTHS) for name in _NAMES
                )
            if isinstance(schema.get("additionalProperties"), dict):
                walk(schema["additionalProperties"], (*path, _VALUE), above)

    walk(operation.schema, (), ())
    return found


def field(operation: Operation, place: Path) -> str:
    """Return the name and the schema of the field at a place. Many kinds hold the same fields: nine hold those of a
    Pod."""
    named = [name for name in place if name not in (_ITEM, _VALUE)]
    schema = {key: value for key, value in operation.at(place).items() if key != "description"}
    return json.dumps([named[-1:], place[-1:], schema], sort_keys=True)


class Generator:
    """Source of candidates. `names`: texts that mean something to the server, such as the sender's own name."""

    def __init__(self, chance: random.Random, names: tuple[str, ...]) -> None:
        self._chance = chance
        self._names = names

    def candidate(self, operation: Operation, growth: Growth, *, patch: bool = False) -> Candidate:
        """Return a request with an object that has grown, no larger than the server reads."""
        while True:
            obj = self._grown(operation, operation.schema, growth)
            obj = {**operation.kind, **obj}
            metadata = obj.get("metadata")
            if isinstance(metadata, dict):
                metadata.setdefault("name", "abused")
            made = self._patch(obj, growth) if patch else Candidate(_encode(obj), "")
            if len(made.body) <= MOST_BYTES:
                return made._replace(about=f"{'.'.join(growth.place)} {growth[1:]} {made.media}")
            growth = growth._replace(size=growth.size * MOST_BYTES // (len(made.body) + 10_000))

    def changed(self, growth: Growth) -> Growth:
        """Return one that grows as another does, but more or less of it."""
        detail = growth.detail if growth.detail == _LONG_NAME else self._chance.randrange(3)
        return growth._replace(size=int(growth.size * self._chance.uniform(0.3, 1.7)), detail=detail)

    def _patch(self, obj: Json, growth: Growth) -> Candidate:
        kind = self._chance.choice(PATCHES)
        sent: Any = obj
        if kind == "json-patch+json":
            name = next(iter(growth.place), "metadata")
            operation = {"op": "add", "path": f"/{name}", "value": obj.get(name)}
            many = {"op": self._chance.choice(("test", "add")), "path": "/metadata/labels", "value": {"a": "b"}}
            sent = [operation, *[many] * min(growth.size, 9_999)]
        return Candidate(_encode(sent), "", f"application/{kind}")

    def _grown(self, operation: Operation, schema: Json, growth: Growth) -> Any:
        """Return a sample of a schema in which a place has grown."""
        schema = operation.resolve(schema)
        if not growth.place:
            return self._large(operation, schema, growth)
        name, below = growth.place[0], growth._replace(place=growth.place[1:])
        if name == _ITEM:
            return [self._grown(operation, schema.get("items", {}), below)]
        if name == _VALUE:
            return {"k": self._grown(operation, schema["additionalProperties"], below)}
        sample = self._sample(operation, schema, 0, 0)
        grown = self._grown(operation, schema["properties"][name], below)
        return {**(sample if isinstance(sample, dict) else {}), name: grown}

    def _large(self, operation: Operation, schema: Json, growth: Growth) -> Any:
        _, size, detail, text = growth
        if schema.get("type") == "string":
            return text * size
        if schema.get("type") == "array":
            items = schema.get("items", {})
            if self._chance.random() < 0.5:
                return [self._sample(operation, items, detail, 0)] * size
            return [self._sample(operation, items, detail, number) for number in range(size)]
        values = schema.get("additionalProperties")
        if detail == _LONG_NAME:
            return {text * size: self._sample(operation, values if isinstance(values, dict) else {}, 0, 1)}
        if isinstance(values, dict):
            return {f"k{number}": self._sample(operation, values, detail, number) for number in range(size)}
        if detail == 0:
            return {f"k{number}": {} for number in range(size)}
        deep: Any = text
        for _ in range(min(size, 200)):
            deep = {"a": deep} if detail == 1 else [deep]
        return {"a": deep}

    def _sample(self, operation: Operation, schema: Json, detail: int, number: int) -> Any:
        """Return a small value of a schema: required members with detail 0, more of them with more."""
        schema = operation.resolve(schema)
        kind = schema.get("type")
        if "enum" in schema:
            return schema["enum"][0]
        if kind in _SCALARS:
            return _SCALARS[kind]
        if kind == "array":
            return [self._sample(operation, schema.get("items", {}), detail - 1, number)] if detail > 0 else []
        if schema.get("properties"):
            wanted = schema["properties"] if detail > 0 else schema.get("required", ())
            return {
                name: self._sample(operation, schema["properties"][name], detail - 1, number)
                for name in wanted
                if name in schema["properties"]
            }
        if kind == "string":
            return self._names[0] if not number and self._chance.random() < 0.5 else f"c-{number}"
        return {}


def _encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
