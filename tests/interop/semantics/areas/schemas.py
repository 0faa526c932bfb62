"""Structural schemas of custom resources: pruning, defaults, validation."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.trial import CRDS, Trial, case, definition, shared

TYPED = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["must"],
            "properties": {
                "must": {"type": "string"},
                "text": {"type": "string", "minLength": 2, "maxLength": 4},
                "word": {"type": "string", "pattern": "^[a-z]+$"},
                "choice": {"type": "string", "enum": ["red", "blue"]},
                "whole": {"type": "integer", "minimum": 1, "maximum": 10},
                "small": {"type": "integer", "format": "int32"},
                "number": {"type": "number", "multipleOf": 0.5, "exclusiveMaximum": True, "maximum": 5},
                "flag": {"type": "boolean"},
                "maybe": {"type": "string", "nullable": True},
                "either": {"x-kubernetes-int-or-string": True},
                "when": {"type": "string", "format": "date-time"},
                "email": {"type": "string", "format": "email"},
                "address": {"type": "string", "format": "ipv4"},
                "bytes": {"type": "string", "format": "byte"},
                "list": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
                "unique": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
                "nested": {
                    "type": "object",
                    "required": ["a"],
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "oneOf": {
                    "type": "object",
                    "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
                    "oneOf": [{"required": ["x"]}, {"required": ["y"]}],
                },
                "anyOf": {
                    "type": "object",
                    "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
                    "anyOf": [{"required": ["x"]}, {"required": ["y"]}],
                },
                "not": {"type": "object", "properties": {"x": {"type": "string"}}, "not": {"required": ["x"]}},
                "embedded": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "count": {"type": "integer"}}},
    },
}
shared("typeds", TYPED, status=True)

DEFAULTED = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "default": {},
            "properties": {
                "size": {"type": "integer", "default": 3},
                "colour": {"type": "string", "default": "red"},
                "deep": {
                    "type": "object",
                    "properties": {"inner": {"type": "string", "default": "x"}},
                },
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}},
                    },
                },
                "nullish": {"type": "string", "nullable": True, "default": "d"},
                "map": {
                    "type": "object",
                    "additionalProperties": {
                        "type": "object",
                        "properties": {"on": {"type": "boolean", "default": True}},
                    },
                },
            },
        }
    },
}
shared("defaulteds", DEFAULTED)


def _try(t: Trial, **spec: Any) -> None:
    t.post(t.crd("typeds"), t.custom("typeds", spec={"must": "be", **spec}), query={"dryRun": "All"})


def _simple(name: str, *specs: dict[str, Any]) -> None:
    """Registers a case that posts each of these specs."""

    def run(t: Trial) -> None:
        for spec in specs:
            _try(t, **spec)

    run.__name__ = name
    case("schemas")(run)


_simple("a_good_one", {}, {"text": "abc", "whole": 5, "flag": True, "list": ["a"], "map": {"a": 1}})
_simple("text_lengths", {"text": "a"}, {"text": "abcde"}, {"text": "äöüß"})
_simple("patterns", {"word": "abc"}, {"word": "ABC"})
_simple("choices", {"choice": "red"}, {"choice": "green"})
_simple("whole_numbers", {"whole": 0}, {"whole": 11}, {"whole": 1.5}, {"whole": "1"}, {"whole": 2.0})
_simple("number_formats", {"small": 2147483648}, {"small": -5}, {"number": 0.3}, {"number": 5}, {"number": 4.5})
_simple("booleans", {"flag": "true"}, {"flag": 1})
_simple("nulls", {"maybe": None}, {"text": None}, {"nested": None}, {"list": None})
_simple("int_or_string", {"either": 5}, {"either": "five"}, {"either": 5.5}, {"either": True})
_simple("times", {"when": "2026-01-02T03:04:05Z"}, {"when": "yesterday"}, {"when": "2026-01-02"})
_simple("formats", {"email": "nobody"}, {"address": "1.2.3.4"}, {"address": "1.2.3"}, {"bytes": "AQI="}, {"bytes": "!"})
_simple("list_sizes", {"list": []}, {"list": ["a", "b", "c"]}, {"list": [1]}, {"list": "a"})
_simple("list_sets", {"unique": [1, 2]}, {"unique": [1, 1]})
_simple("maps", {"map": {"a": "x"}}, {"map": {"a": 1, "b": 2, "c": 3}}, {"map": []})
_simple("nested_requirements", {"nested": {}}, {"nested": {"a": "x"}}, {"nested": {"a": "x", "c": "pruned"}})
_simple("free_fields", {"free": {"any": {"thing": [1, None]}}})
_simple("one_of", {"oneOf": {}}, {"oneOf": {"x": "1"}}, {"oneOf": {"x": "1", "y": "2"}})
_simple("any_of", {"anyOf": {}}, {"anyOf": {"x": "1", "y": "2"}})
_simple("none_of", {"not": {}}, {"not": {"x": "1"}})
_simple(
    "embedded_resources",
    {"embedded": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": "v"}}},
    {"embedded": {"kind": "ConfigMap"}},
    {"embedded": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "BAD NAME", "colour": "red"}}},
)
_simple("several_mistakes_at_once", {"text": "a", "whole": 0, "choice": "green"})


@case("schemas")
def what_is_required(t: Trial) -> None:
    path = t.crd("typeds")
    t.post(path, t.custom("typeds"))
    t.post(path, t.custom("typeds", spec={}))
    t.post(path, t.custom("typeds", spec=None))
    t.post(path, t.custom("typeds", spec=[]))


@case("schemas")
def unknown_fields_are_pruned(t: Trial) -> None:
    path = t.crd("typeds")
    for validation in ("Warn", "Strict", "Ignore"):
        body = t.custom("typeds", spec={"must": "be", "colour": "red"}, extra=1)
        t.post(path, body, query={"fieldValidation": validation, "dryRun": "All"})


@case("schemas")
def duplicate_fields(t: Trial) -> None:
    path = t.crd("typeds")
    text = '{"apiVersion":"%s","kind":"Typed","metadata":{"name":"%s"},"spec":{"must":"a","must":"b"}}'
    for validation in ("Warn", "Strict", "Ignore"):
        body = text % (t.api_version(), t.name())
        t.post(path, body, query={"fieldValidation": validation, "dryRun": "All"})


@case("schemas")
def unknown_metadata_is_dropped(t: Trial) -> None:
    body = t.custom("typeds", metadata={"colour": "red"}, spec={"must": "be"})
    for validation in ("Warn", "Strict"):
        t.post(t.crd("typeds"), body, query={"dryRun": "All", "fieldValidation": validation})


@case("schemas")
def a_bad_validation_mode(t: Trial) -> None:
    t.post(t.crd("typeds"), t.custom("typeds", spec={"must": "be"}), query={"fieldValidation": "Maybe"})


@case("schemas")
def defaults_fill_in(t: Trial) -> None:
    path = t.crd("defaulteds")
    t.post(path, t.custom("defaulteds"))
    t.post(path, t.custom("defaulteds", "d2", spec={"size": 9, "deep": {}, "items": [{"port": 1}], "map": {"a": {}}}))
    t.post(path, t.custom("defaulteds", "d3", spec={"colour": None, "nullish": None, "deep": None}))
    t.patch(f"{path}/{t.name('d2')}", {"spec": {"size": None}})


@case("schemas")
def updates_are_validated(t: Trial) -> None:
    path = t.crd("typeds")
    t.post(path, t.custom("typeds", spec={"must": "be"}))
    one = f"{path}/{t.name()}"
    t.patch(one, {"spec": {"whole": 99}})
    t.patch(one, {"spec": {"must": None}})
    t.patch(one, {"spec": {"whole": 9}})
    t.patch(one, [{"op": "add", "path": "/spec/flag", "value": "x"}], "json")


@case("schemas")
def status_is_apart(t: Trial) -> None:
    path = t.crd("typeds")
    t.post(path, t.custom("typeds", spec={"must": "be"}, status={"phase": "x"}), note="dropped on create")
    one = f"{path}/{t.name()}"
    t.patch(one, {"status": {"phase": "y"}}, note="ignored on update")
    t.patch(f"{one}/status", {"status": {"phase": "z"}, "spec": {"must": "not"}, "metadata": {"labels": {"a": "b"}}})
    t.patch(f"{one}/status", {"status": {"count": "one"}})
    now = t.get(f"{one}/status").body
    t.put(f"{one}/status", {**now, "status": {"phase": "w", "unknown": 1}})


@case("schemas")
def generation_counts_spec_only(t: Trial) -> None:
    path = t.crd("typeds")
    t.quietly("POST", path, t.custom("typeds", spec={"must": "be"}))
    one = f"{path}/{t.name()}"
    t.patch(one, {"metadata": {"labels": {"a": "b"}}})
    t.patch(one, {"spec": {"must": "change"}})
    t.patch(f"{one}/status", {"status": {"phase": "x"}})


@case("schemas")
def generation_without_a_status_counts_everything_but_metadata(t: Trial) -> None:
    path = t.crd("plains")
    t.quietly("POST", path, t.custom("plains", spec={"a": 1}))
    one = f"{path}/{t.name()}"
    t.patch(one, {"metadata": {"labels": {"a": "b"}}})
    t.patch(one, {"status": {"x": 1}})
    t.get(f"{one}/status")


@case("schemas")
def nulls_and_big_numbers_survive(t: Trial) -> None:
    path = t.crd("plains")
    t.post(
        path, t.custom("plains", spec={"null": None, "big": 9007199254740993, "float": 1.0, "tiny": 1e-7, "e": 1e21})
    )
    t.get(f"{path}/{t.name()}")


@case("schemas")
def numbers_out_of_range(t: Trial) -> None:
    head = '{"apiVersion":"%s","kind":"Plain","metadata":{"name":"%s"},"spec":{"n":%s}}'
    for number in ("9223372036854775808", "-9223372036854775809", "1e400", "18446744073709551616", "-0", "1.50"):
        t.post(t.crd("plains"), head % (t.api_version(), t.name(), number), query={"dryRun": "All"})


@case("schemas")
def definitions_must_be_structural(t: Trial) -> None:
    schemas: list[dict[str, Any]] = [
        {"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "strin"}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
        {"type": "object", "properties": {"a": {"type": "string", "default": 5}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}},
        {"type": "object", "properties": {"a": {"$ref": "#/x"}}},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {}, "additionalProperties": True}}},
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                }
            },
        },
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
        },
        {"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-preserve-unknown-fields": False}}},
    ]
    for index, schema in enumerate(schemas):
        body = definition(t.group("bad"), "structs", schema)
        t.post(CRDS, body, query={"dryRun": "All"}, note=str(index))


@case("schemas")
def definitions_need_a_schema(t: Trial) -> None:
    body = definition(t.group("bad"), "structs")
    del body["spec"]["versions"][0]["schema"]
    t.post(CRDS, body, query={"dryRun": "All"})
