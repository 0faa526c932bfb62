"""CEL rules in definitions: what they see, what they refuse, what they cost."""

from __future__ import annotations

from typing import Any

from tests.interop.semantics.trial import CRDS, Trial, case, definition, shared


def _rules(*rules: Any) -> list[dict[str, Any]]:
    return [rule if isinstance(rule, dict) else {"rule": rule} for rule in rules]


RULED = {
    "type": "object",
    "x-kubernetes-validations": _rules(
        {"rule": "self.metadata.name.startsWith('ok') || !has(self.spec.strict)", "message": "a strict name"}
    ),
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-validations": _rules(
                {"rule": "!has(self.low) || !has(self.high) || self.low <= self.high", "message": "low above high"},
                {"rule": "has(self.fixed) == has(oldSelf.fixed)", "message": "fixed may not come or go"},
                {
                    "rule": "!has(self.reasoned) || self.reasoned",
                    "reason": "FieldValueForbidden",
                    "fieldPath": ".reasoned",
                    "messageExpression": "self.reasoned ? 'yes' : 'it is not reasoned'",
                },
            ),
            "properties": {
                "strict": {"type": "boolean"},
                "low": {"type": "integer"},
                "high": {"type": "integer"},
                "reasoned": {"type": "boolean"},
                "fixed": {"type": "string", "x-kubernetes-validations": _rules("self == oldSelf")},
                "grow": {
                    "type": "integer",
                    "x-kubernetes-validations": _rules({"rule": "self >= oldSelf", "message": "only up"}),
                },
                "words": {
                    "type": "array",
                    "maxItems": 10,
                    "items": {"type": "string", "maxLength": 20},
                    "x-kubernetes-validations": _rules(
                        {"rule": "self.all(w, w.size() > 1)", "message": "words have two letters"},
                        {"rule": "self.exists_one(w, w == 'one') || size(self) != 3", "message": "three with a one"},
                    ),
                },
                "map": {
                    "type": "object",
                    "maxProperties": 5,
                    "additionalProperties": {"type": "integer"},
                    "x-kubernetes-validations": _rules({"rule": "self.all(k, self[k] > 0)", "message": "positive"}),
                },
                "items": {
                    "type": "array",
                    "maxItems": 5,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id"],
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "x-kubernetes-validations": _rules(
                            {"rule": "!has(self.size) || self.size < 100", "message": "too big"},
                            {
                                "rule": "!has(oldSelf.size) || has(self.size)",
                                "message": "a size stays",
                            },
                        ),
                        "properties": {"id": {"type": "string", "maxLength": 10}, "size": {"type": "integer"}},
                    },
                },
                "url": {
                    "type": "string",
                    "maxLength": 100,
                    "x-kubernetes-validations": _rules(
                        {"rule": "isURL(self) && url(self).getScheme() == 'https'", "message": "https only"}
                    ),
                },
                "amount": {
                    "type": "string",
                    "maxLength": 20,
                    "x-kubernetes-validations": _rules(
                        {"rule": "isQuantity(self) && quantity(self).isLessThan(quantity('10Gi'))", "message": "less"}
                    ),
                },
                "address": {
                    "type": "string",
                    "maxLength": 50,
                    "x-kubernetes-validations": _rules(
                        {"rule": "isIP(self) && ip(self).family() == 4", "message": "IPv4 only"}
                    ),
                },
                "pattern": {
                    "type": "string",
                    "maxLength": 50,
                    "x-kubernetes-validations": _rules(
                        {"rule": "self.find('[0-9]+') == '42'", "message": "forty-two comes first"}
                    ),
                },
                "when": {
                    "type": "string",
                    "format": "date-time",
                    "x-kubernetes-validations": _rules(
                        {"rule": "self > timestamp('2020-01-01T00:00:00Z')", "message": "after 2020"}
                    ),
                },
                "wait": {
                    "type": "string",
                    "format": "duration",
                    "x-kubernetes-validations": _rules({"rule": "self < duration('1h')", "message": "under an hour"}),
                },
                "either": {
                    "x-kubernetes-int-or-string": True,
                    "x-kubernetes-validations": _rules(
                        {"rule": "type(self) == int ? self < 5 : self == 'many'", "message": "few or many"}
                    ),
                },
                "broken": {
                    "type": "array",
                    "maxItems": 3,
                    "items": {"type": "integer"},
                    "x-kubernetes-validations": _rules("self[5] == 1"),
                },
                "optional": {
                    "type": "string",
                    "x-kubernetes-validations": [
                        {
                            "rule": "!oldSelf.hasValue() || self != oldSelf.value()",
                            "optionalOldSelf": True,
                            "message": "must change",
                        }
                    ],
                },
                "__under": {"type": "string", "maxLength": 9},
                "namespace": {"type": "string", "x-kubernetes-validations": _rules("self != 'bad'")},
            },
        }
    },
}
shared("ruleds", RULED)


def _simple(name: str, *specs: dict[str, Any]) -> None:
    def run(t: Trial) -> None:
        for spec in specs:
            t.post(t.crd("ruleds"), t.custom("ruleds", spec=spec), query={"dryRun": "All"})

    run.__name__ = name
    case("rules")(run)


_simple("between_fields", {"low": 1, "high": 2}, {"low": 3, "high": 2})
_simple("on_the_root", {"strict": True})
_simple("reason_path_and_expression", {"reasoned": False}, {"reasoned": True})
_simple("over_lists", {"words": ["ab", "c"]}, {"words": ["one", "two", "one"]}, {"words": ["one", "two", "xx"]})
_simple("over_maps", {"map": {"a": 1}}, {"map": {"a": 0}})
_simple("inside_items", {"items": [{"id": "a", "size": 5}]}, {"items": [{"id": "a"}, {"id": "b", "size": 500}]})
_simple("urls", {"url": "https://x.dev"}, {"url": "http://x.dev"}, {"url": "::"})
_simple("quantities", {"amount": "1Gi"}, {"amount": "10Gi"}, {"amount": "much"})
_simple("addresses", {"address": "10.0.0.1"}, {"address": "::1"}, {"address": "x"})
_simple("patterns", {"pattern": "a42b7"}, {"pattern": "a7b42"})
_simple("times", {"when": "2021-01-01T00:00:00Z"}, {"when": "2019-01-01T00:00:00Z"})
_simple("durations", {"wait": "5m"}, {"wait": "2h"}, {"wait": "soon"})
_simple("int_or_string", {"either": 3}, {"either": 7}, {"either": "many"}, {"either": "few"})
_simple("a_rule_that_fails_to_run", {"broken": [1]})
_simple("schema_errors_come_first", {"low": "x", "high": 1})
_simple("a_default_message", {"namespace": "bad"})
_simple("optional_old_self_on_create", {"optional": "a"})


def _changes(name: str, before: dict[str, Any], *patches: dict[str, Any]) -> None:
    def run(t: Trial) -> None:
        path = t.crd("ruleds")
        t.quietly("POST", path, t.custom("ruleds", spec=before))
        for patch in patches:
            t.patch(f"{path}/{t.name()}", {"spec": patch})

    run.__name__ = name
    case("rules")(run)


_changes("an_immutable_field", {"fixed": "a"}, {"fixed": "b"}, {"fixed": "a"})
_changes("a_field_that_may_not_go", {"fixed": "a"}, {"fixed": None})
_changes("a_field_that_may_not_come", {"low": 1}, {"fixed": "a"})
_changes("only_up", {"grow": 5}, {"grow": 4}, {"grow": 6})
_changes("optional_old_self_on_update", {"optional": "a"}, {"optional": "b"}, {"low": 1})
_changes(
    "transitions_of_keyed_items",
    {"items": [{"id": "a", "size": 1}, {"id": "b"}]},
    {"items": [{"id": "b"}, {"id": "a"}]},
    {"items": [{"id": "c"}, {"id": "a", "size": 2}]},
)


@case("rules")
def unchanged_bad_values_are_tolerated(t: Trial) -> None:
    plural = "ratcheteds"
    path = t.define(plural, {"type": "object", "properties": {"spec": {"type": "object", "properties": SIZED}}})
    t.quietly("POST", path, t.custom(plural, spec={"size": 50}))
    tighter = {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 10", "message": "small only"}]}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {**SIZED, "size": tighter}}}}
    change = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": schema}]
    json_patch = {"Content-Type": "application/json-patch+json"}
    t.quietly("PATCH", f"{CRDS}/{plural}.{t.group()}", change, headers=json_patch)
    probe = t.custom(plural, "probe", spec={"size": 11})
    t.until(lambda: t.server.http("POST", f"{path}?dryRun=All", probe).code == 422)
    t.patch(f"{path}/{t.name()}", {"spec": {"other": "x"}})
    t.patch(f"{path}/{t.name()}", {"spec": {"size": 60}})


SIZED: dict[str, Any] = {"size": {"type": "integer"}, "other": {"type": "string"}}


@case("rules")
def rules_that_do_not_compile(t: Trial) -> None:
    for index, rule in enumerate(
        (
            "self.nothing == 1",
            "self.a ==",
            "self.a == 1",
            "'text'",
            "self.a.size() > x",
            "",
            "self.list.all(x, x.all(y, y > 0))",
            "unknownFunction(self.a)",
        )
    ):
        schema = {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "list": {"type": "array", "items": {"type": "integer"}}},
                    "x-kubernetes-validations": [{"rule": rule}],
                }
            },
        }
        t.post(CRDS, definition(t.group("rule"), "celbads", schema), query={"dryRun": "All"}, note=str(index))


@case("rules")
def rules_that_cost_too_much(t: Trial) -> None:
    strings = {"type": "array", "items": {"type": "string"}}
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"list": strings, "more": strings},
                "x-kubernetes-validations": [{"rule": "self.list.all(x, self.more.all(y, x.contains(y)))"}],
            }
        },
    }
    reply = t.server.http("POST", f"{CRDS}?dryRun=All", definition(t.group("cost"), "celcosts", schema))
    t.note([reply.code, reply.body.get("reason"), [cause["reason"] for cause in reply.body["details"]["causes"]]])


@case("rules")
def rules_with_bad_companions(t: Trial) -> None:
    for index, rule in enumerate(
        (
            {"rule": "true", "reason": "Whatever"},
            {"rule": "true", "fieldPath": ".nothing"},
            {"rule": "true", "messageExpression": "5"},
            {"rule": "true", "message": "  "},
            {"rule": "true", "message": "two\nlines"},
        )
    ):
        schema = {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [rule]}
            },
        }
        t.post(CRDS, definition(t.group("rule"), "celbads", schema), query={"dryRun": "All"}, note=str(index))
