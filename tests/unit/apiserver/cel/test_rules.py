"""Rules on objects: which run, on what, and how refusals read."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.kube.errors import DUPLICATE, FORBIDDEN, INVALID, REQUIRED
from remuda.kube.schema import Rule, Schema

from .shapes import INT, TEXT, array, by_key, obj, refusals, rules, ruleset


def _spec(schema: Schema) -> Schema:
    return obj({"spec": schema})


def _scalar(kind: Any, *given: str | Rule, **more: Any) -> Schema:
    return _spec(Schema(type=kind, rules=rules(*given), **more))


def test_failed_rule_error_shows_rule_without_container_value() -> None:
    schema = _spec(obj({"min": INT, "max": INT}, "self.min <= self.max"))
    assert refusals(schema, {"spec": {"min": 1, "max": 2}}) == []
    assert refusals(schema, {"spec": {"min": 3, "max": 2}}) == [
        "spec: Invalid value: failed rule: self.min <= self.max"
    ]


def test_failed_rule_error_shows_scalar_value() -> None:
    assert refusals(_scalar("integer", "self > 5"), {"spec": 3}) == ["spec: Invalid value: 3: failed rule: self > 5"]
    assert refusals(_scalar("string", "self == 'a'"), {"spec": "b"}) == [
        "spec: Invalid value: \"b\": failed rule: self == 'a'"
    ]


def test_rule_message_is_trimmed_and_replaces_rule_text() -> None:
    assert refusals(_scalar("integer", Rule(rule="self > 5", message=" too small ")), {"spec": 3}) == [
        "spec: Invalid value: 3: too small"
    ]


@pytest.mark.parametrize(
    ("expression", "detail"),
    [
        ("'got %d'.format([self])", "got 3"),
        ("'a\\nb'", "fallback"),  # no line breaks
        ("'  '", "fallback"),  # nothing said
        ("string(1 / (self - 3))", "fallback"),  # fails itself
    ],
)
def test_message_expression_overrides_message_with_fallback(expression: str, detail: str) -> None:
    rule = Rule(rule="self > 5", message="fallback", message_expression=expression)
    assert refusals(_scalar("integer", rule), {"spec": 3}) == [f"spec: Invalid value: 3: {detail}"]


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (INVALID, "spec: Invalid value: 3: m"),
        (FORBIDDEN, "spec: Forbidden: m"),
        (REQUIRED, "spec: Required value: m"),
        (DUPLICATE, "spec: Duplicate value: 3"),
    ],
)
def test_rule_reason_determines_error_kind(reason: str, text: str) -> None:
    schema = _scalar("integer", Rule(rule="self > 5", message="m", reason=reason))
    assert refusals(schema, {"spec": 3}) == [text]
    assert ruleset(schema).validate({"spec": 3})[0].kind == reason


def test_rule_field_path_is_appended_to_error_path() -> None:
    rule = Rule(rule="self.a.b > 5", field_path=".a.b")
    assert refusals(_spec(obj({"a": obj({"b": INT})}, rule)), {"spec": {"a": {"b": 1}}}) == [
        "spec.a.b: Invalid value: failed rule: self.a.b > 5"
    ]


def test_evaluation_error_includes_the_rule() -> None:
    schema = _spec(obj({"a": INT, "any": Schema(int_or_string=True)}, "self.a > 0", "self.any > 3"))
    assert refusals(schema, {"spec": {"any": "x"}}) == [
        'spec: Invalid value: "object": no such key: a evaluating rule: self.a > 0',
        "spec: Invalid value: \"object\": 'no such overload': call arguments did not match a supported operator, "
        "function or macro signature for rule: self.any > 3",
    ]


def test_rules_do_not_run_on_absent_or_null_values() -> None:
    schema = _scalar("string", "self == 'a'", nullable=True)
    assert refusals(schema, {}) == []
    assert refusals(schema, {"spec": None}) == []


def test_null_fields_are_absent_to_has() -> None:
    schema = _spec(obj({"x": Schema(type="integer", nullable=True)}, "!has(self.x)"))
    assert refusals(schema, {"spec": {"x": None}}) == []
    assert refusals(schema, {"spec": {"x": 1}}) != []


def test_error_path_names_list_index_and_map_key() -> None:
    small = Schema(type="string", max_length=9, rules=rules("self.size() < 3"))
    schema = obj({"m": Schema(type="object", additional=array(small), max_properties=4)})
    assert refusals(schema, {"m": {"a/b": ["aa", "aaaa"]}}) == [
        'm[a/b][1]: Invalid value: "aaaa": failed rule: self.size() < 3'
    ]


def test_validate_prefixes_error_path() -> None:
    (error,) = ruleset(_scalar("integer", "self > 5")).validate({"spec": 1}, path="items[0]")
    assert error.path == "items[0].spec"


class TestOldValues:
    def test_transition_rules_run_only_with_an_old_value(self) -> None:
        schema = _scalar("integer", "self > oldSelf")
        assert refusals(schema, {"spec": 1}) == []
        assert refusals(schema, {"spec": 1}, {}) == []
        assert refusals(schema, {"spec": 3}, {"spec": 2}) == []
        assert refusals(schema, {"spec": 1}, {"spec": 2}) == ["spec: Invalid value: 1: failed rule: self > oldSelf"]

    def test_transition_rules_run_on_unchanged_values(self) -> None:
        assert refusals(_scalar("integer", "self > oldSelf"), {"spec": 2}, {"spec": 2}) != []

    def test_optional_old_self_rule_runs_without_old_value(self) -> None:
        rule = Rule(rule="oldSelf.hasValue() ? self >= oldSelf.value() : self > 5", optional_old_self=True)
        schema = _scalar("integer", rule)
        assert refusals(schema, {"spec": 6}) == []
        assert refusals(schema, {"spec": 1}) != []
        assert refusals(schema, {"spec": 2}, {"spec": 1}) == []
        assert refusals(schema, {"spec": 1}, {"spec": 2}) != []

    def test_map_list_items_are_correlated_with_old_items_by_key(self) -> None:
        item = obj({"name": TEXT, "v": INT}, "self.v >= oldSelf.v", required=("name",))
        schema = obj({"l": by_key(item)})
        old = {"l": [{"name": "b", "v": 5}, {"name": "a", "v": 1}]}
        assert refusals(schema, {"l": [{"name": "a", "v": 1}, {"name": "b", "v": 2}]}, old) == [
            "l[1]: Invalid value: failed rule: self.v >= oldSelf.v"
        ]

    def test_failing_rule_on_unchanged_value_is_ratcheted(self) -> None:
        schema = _scalar("integer", "self > 5")
        assert refusals(schema, {"spec": 3}, {"spec": 3}) == []
        assert refusals(schema, {"spec": 3}, {"spec": 4}) != []

    def test_ratcheted_failure_produces_warning(self) -> None:
        warnings: list[str] = []
        assert ruleset(_scalar("integer", "self > 5")).validate({"spec": 3}, {"spec": 3}, warnings=warnings) == []
        assert warnings == ["spec: Invalid value: 3: failed rule: self > 5"]

    def test_unchanged_map_list_items_are_ratcheted_individually(self) -> None:
        item = obj({"name": TEXT, "v": INT}, "self.v > 3", required=("name",))
        new = {"l": [{"name": "a", "v": 1}, {"name": "b", "v": 2}]}
        old = {"l": [{"name": "b", "v": 5}, {"name": "a", "v": 1}]}
        assert refusals(obj({"l": by_key(item)}), new, old) == ["l[1]: Invalid value: failed rule: self.v > 3"]
        assert len(refusals(obj({"l": array(item)}), new, old)) == 2
        assert refusals(obj({"l": array(item)}), new, new) == []


class TestWhatExpressionsSee:
    @pytest.mark.parametrize(
        ("schema", "value", "rule"),
        [
            (Schema(type="string", format="date-time"), "2020-01-01T00:00:00Z", "self.x.getFullYear() == 2020"),
            (Schema(type="string", format="date"), "2020-01-02", "self.x == timestamp('2020-01-02T00:00:00Z')"),
            (Schema(type="string", format="duration"), "90s", "self.x == duration('1m30s')"),
            (Schema(type="string", format="byte"), "YWJj", "self.x == b'abc'"),
            (Schema(type="number"), 1, "self.x == 1.0 && self.x / 2.0 == 0.5"),
            (Schema(int_or_string=True), 5, "type(self.x) == int && self.x == 5"),
            (Schema(int_or_string=True), "5%", "type(self.x) == string && self.x == '5%'"),
            (array(Schema(type="number")), [1, 2.5], "self.x.sum() == 3.5"),
            (array(Schema(type="string", format="duration")), ["1s"], "self.x.all(d, d == duration('1000ms'))"),
            (
                Schema(type="object", additional=Schema(type="number")),
                {"a": 1},
                "self.x['a'] == 1.0 && self.x.a == 1.0",
            ),
            (obj({"y": INT}, embedded_resource=True), {"kind": "K", "metadata": {"name": "n"}}, "self.x.kind == 'K'"),
            (obj({}, preserve_unknown=True), {"a": 1}, "has(self.x)"),
        ],
    )
    def test_values_have_cel_types_from_their_schema(self, schema: Schema, value: Any, rule: str) -> None:
        assert refusals(obj({"x": schema}, rule), {"x": value}) == []

    @pytest.mark.parametrize(
        ("name", "access"),
        [
            ("my-field", "self.my__dash__field"),
            ("a.b", "self.a__dot__b"),
            ("a/b", "self.a__slash__b"),
            ("x__y", "self.x__underscores__y"),
            ("namespace", "self.__namespace__"),
            ("namespace", "self.namespace"),
            ("in", "self.__in__"),
        ],
    )
    def test_non_identifier_field_names_are_escaped(self, name: str, access: str) -> None:
        assert refusals(obj({name: INT}, f"{access} == 7"), {name: 7}) == []

    def test_root_metadata_name_and_kind_are_always_accessible(self) -> None:
        schema = obj({}, "self.metadata.name.startsWith('a') && self.kind == 'K'")
        assert refusals(schema, {"kind": "K", "metadata": {"name": "abc"}}) == []

    def test_sets_and_map_lists_compare_without_order(self) -> None:
        schema = obj({"s": array(TEXT, list_type="set"), "m": by_key(obj({"name": TEXT, "v": INT})), "l": array(TEXT)})
        old = {"s": ["a", "b"], "m": [{"name": "x", "v": 1}, {"name": "y"}], "l": ["a", "b"]}
        new = {"s": ["b", "a"], "m": [{"name": "y"}, {"name": "x", "v": 1}], "l": ["b", "a"]}
        schema.rules = rules("self.s == oldSelf.s", "self.m == oldSelf.m", "self.l == oldSelf.l")
        assert refusals(schema, new, old) == ["<nil>: Invalid value: failed rule: self.l == oldSelf.l"]

    def test_adding_sets_and_map_lists_merges(self) -> None:
        schema = obj(
            {"s": array(TEXT, list_type="set"), "m": by_key(obj({"name": TEXT, "v": INT})), "l": array(TEXT)},
            "(self.s + ['a', 'c']).size() == 3",
            "(self.m + self.m).size() == 2",
            "(self.l + ['a']).size() == 3",
        )
        assert refusals(schema, {"s": ["a", "b"], "m": [{"name": "x"}, {"name": "y"}], "l": ["a", "b"]}) == []


# Rules as Cluster API, Gateway API and others ship them: schema, rules, a value they take and one they refuse.
_CONDITION = obj({"type": TEXT, "status": TEXT, "reason": TEXT})
_LISTENER = obj({"name": TEXT, "port": INT, "protocol": TEXT, "hostname": TEXT, "tls": obj({"mode": TEXT})})
_FIELD: list[tuple[Schema, str, Any, Any]] = [
    (
        obj({"configRef": obj({"name": TEXT}), "dataSecretName": TEXT}),
        "has(self.configRef) || has(self.dataSecretName)",
        {"dataSecretName": "a"},
        {},
    ),
    (
        obj({"host": TEXT, "port": INT}),
        "(!has(self.host) || self.host == '') == (!has(self.port) || self.port == 0)",
        {"host": "h", "port": 1},
        {"host": "h"},
    ),
    (array(TEXT), "self.all(x, x.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))", ["a-b"], ["-a"]),
    (
        by_key(obj({"name": TEXT})),
        "self.all(a, self.exists_one(b, a.name == b.name))",
        [{"name": "a"}, {"name": "b"}],
        [{"name": "a"}, {"name": "a"}],
    ),
    (TEXT, "self != 'builtin'", "x", "builtin"),
    (TEXT, "url(self).getScheme() in ['http', 'https']", "https://a.example/x", "ftp://a.example/x"),
    (TEXT, "isCIDR(self) && cidr(self).prefixLength() <= 24", "10.0.0.0/16", "10.0.0.0/28"),
    (TEXT, "self.split('/').size() <= 2 && self.split('/')[0].size() > 0", "a/b", "/b"),
    (TEXT, "quantity(self).isGreaterThan(quantity('1Gi'))", "2Gi", "1Mi"),
    (Schema(int_or_string=True), "type(self) == int ? self >= 0 : self.matches('^[0-9]+%$')", "5%", "five"),
    (
        array(_CONDITION),
        "self.exists(c, c.type == 'Ready' && c.status == 'True')",
        [{"type": "Ready", "status": "True"}],
        [{"type": "Ready", "status": "False"}],
    ),
    (
        by_key(_LISTENER),
        "self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)",
        [{"name": "a", "protocol": "HTTPS", "tls": {}}],
        [{"name": "a", "protocol": "HTTP", "tls": {}}],
    ),
    (
        by_key(_LISTENER),
        "self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && (has(l1.hostname) && "
        "has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && !has(l2.hostname))))",
        [{"name": "a", "port": 1, "protocol": "TCP"}, {"name": "b", "port": 1, "protocol": "TCP", "hostname": "h"}],
        [{"name": "a", "port": 1, "protocol": "TCP"}, {"name": "b", "port": 1, "protocol": "TCP"}],
    ),
    (
        obj({"minSize": INT, "maxSize": INT, "replicas": INT}),
        "!has(self.replicas) || (self.replicas >= self.?minSize.orValue(0) && self.replicas <= self.maxSize)",
        {"replicas": 2, "maxSize": 3},
        {"replicas": 4, "maxSize": 3},
    ),
    (
        Schema(type="object", additional=TEXT, max_properties=8),
        "self.all(k, !k.startsWith('kubernetes.io/')) && !('forbidden' in self)",
        {"a": "b"},
        {"kubernetes.io/x": "b"},
    ),
    (
        obj({"timeout": Schema(type="string", format="duration")}),
        "self.timeout >= duration('1s') && self.timeout < duration('1h')",
        {"timeout": "30s"},
        {"timeout": "2h"},
    ),
    (
        obj({"type": Schema(type="string", enum=("A", "B")), "a": TEXT, "b": TEXT}),
        "self.type == 'A' ? has(self.a) && !has(self.b) : self.type == 'B' ? has(self.b) : false",
        {"type": "A", "a": "x"},
        {"type": "A", "b": "x"},
    ),
    (TEXT, "semver(self, true).isGreaterThan(semver('1.27.0'))", "v1.30", "v1.20"),
    (TEXT, "!format.dns1123Label().validate(self).hasValue()", "a-b", "A"),
]


@pytest.mark.parametrize(("schema", "rule", "good", "bad"), _FIELD, ids=[rule for _, rule, _, _ in _FIELD])
def test_real_world_rules_accept_valid_and_reject_invalid_values(
    schema: Schema, rule: str, good: Any, bad: Any
) -> None:
    node = Schema(**{name: getattr(schema, name) for name in schema.__struct_fields__} | {"rules": rules(rule)})
    assert refusals(obj({"spec": node}), {"spec": good}) == []
    assert len(refusals(obj({"spec": node}), {"spec": bad})) == 1


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        ("self == oldSelf", ("a", "a"), ("a", "b")),
        ("oldSelf == '' || self == oldSelf", ("b", ""), ("b", "a")),
    ],
)
def test_immutability_rule_rejects_changed_value(rule: str, good: tuple[str, str], bad: tuple[str, str]) -> None:
    schema = _scalar("string", rule)
    assert refusals(schema, {"spec": good[0]}, {"spec": good[1]}) == []
    assert len(refusals(schema, {"spec": bad[0]}, {"spec": bad[1]})) == 1


def test_transition_rule_rejects_removing_a_set_field() -> None:
    schema = _spec(obj({"x": TEXT, "y": TEXT}, "!has(oldSelf.x) || has(self.x)"))
    assert refusals(schema, {"spec": {"y": "b"}}, {"spec": {"x": "a"}}) != []
    assert refusals(schema, {"spec": {"x": "b"}}, {"spec": {"x": "a"}}) == []


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, {"spec": 1}, {"spec": []}, {"spec": {"l": 1, "m": []}}])
def test_malformed_data_yields_only_invalid_errors(value: Any) -> None:
    item = obj({"name": TEXT}, "self.name != ''")
    schema = _spec(
        obj(
            {"l": array(item), "m": Schema(type="object", additional=INT), "t": Schema(type="string", format="date")},
            "self.l.all(x, x.name.size() > 0)",
            "self.m.a > 1 || self.t > timestamp(0)",
        )
    )
    for error in ruleset(schema).validate(value, {"spec": {"l": [1]}}):
        assert error.kind == INVALID
