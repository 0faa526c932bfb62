"""What a CRD's author is told about rules that cannot be, and what rules may cost."""

from __future__ import annotations

import pytest

from remuda.apiserver.cel.cost import OBJECT_BUDGET
from remuda.apiserver.cel.rules import compile_rules, has_rules
from remuda.apiserver.cel.values import CostExceeded
from remuda.kube.schema import Rule, Schema

from .notation import evaluate
from .shapes import INT, TEXT, array, by_key, complaints, obj, refusals, rules, ruleset


def _shown(rule: str) -> str:
    return (
        f'{{"Rule":"{rule}","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}}'
    )


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ("self.zz", "compilation failed: ERROR: <input>:1:5: undefined field 'zz'\n | self.zz\n | ....^"),
        (
            "self.a + 'b' == 'c'",
            "compilation failed: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(int, string)'\n"
            " | self.a + 'b' == 'c'\n | .......^",
        ),
        ("self.a", "cel expression must evaluate to a bool"),
        ("int('x') == 1", "program instantiation failed: type conversion error from 'string' to 'int'"),
        (
            "self.p.x == 1",
            "compilation failed: ERROR: <input>:1:7: undefined field 'x'\n | self.p.x == 1\n | ......^",
        ),
        (
            "self.metadata.namespace == 'x'",
            "compilation failed: ERROR: <input>:1:14: undefined field 'namespace'\n"
            " | self.metadata.namespace == 'x'\n | .............^",
        ),
    ],
)
def test_uncompilable_rule_is_reported_with_compiler_error(rule: str, complaint: str) -> None:
    schema = obj({"a": INT, "p": obj({}, preserve_unknown=True)}, rule)
    assert complaints(schema) == [
        f"schema.x-kubernetes-validations[0].rule: Invalid value: {_shown(rule)}: {complaint}"
    ]


def test_compile_error_path_points_to_the_rule() -> None:
    schema = obj({"a": Schema(type="object", additional=array(obj({}, "true", "false ||")), max_properties=2)})
    assert complaints(schema)[0].startswith(
        "schema.properties[a].additionalProperties.items.x-kubernetes-validations[1].rule: Invalid value: "
    )


def test_valid_rules_run_despite_an_invalid_rule() -> None:
    compiled, errors = compile_rules(obj({"a": INT}, "self.zz", "self.a > 1"), "schema")
    assert len(errors) == 1
    assert compiled is not None
    assert [str(error) for error in compiled.validate({"a": 1})] == ["<nil>: Invalid value: failed rule: self.a > 1"]


@pytest.mark.parametrize(
    ("rule", "field", "complaint"),
    [
        (Rule(rule=" "), "rule", "Required value: rule is not specified"),
        (Rule(rule="true", message=" "), "message", 'Invalid value: " ": must be non-empty if specified'),
        (Rule(rule="true", message="a\nb"), "message", 'Invalid value: "a\\nb": must not contain line breaks'),
        (
            Rule(rule="true &&\ntrue"),
            "message",
            "Required value: message must be specified if rule contains line breaks",
        ),
        (
            Rule(rule="true", message_expression=" "),
            "messageExpression",
            "Required value: messageExpression must be non-empty if specified",
        ),
        (
            Rule(rule="true", reason="Odd"),
            "reason",
            'Unsupported value: "Odd": supported values: "FieldValueDuplicate", "FieldValueForbidden", '
            '"FieldValueInvalid", "FieldValueRequired"',
        ),
        (Rule(rule="true", field_path=".zz"), "fieldPath", 'Invalid value: ".zz": must be a valid path'),
        (Rule(rule="true", field_path="a"), "fieldPath", 'Invalid value: "a": must be a valid path'),
        (
            Rule(rule="self.a > 1", optional_old_self=True),
            "optionalOldSelf",
            "Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ],
)
def test_malformed_rule_is_reported_with_field_path(rule: Rule, field: str, complaint: str) -> None:
    assert complaints(obj({"a": INT}, rule)) == [f"schema.x-kubernetes-validations[0].{field}: {complaint}"]


def test_message_expression_must_be_a_string() -> None:
    (complaint,) = complaints(obj({"a": INT}, Rule(rule="self.a == 1", message_expression="self.a")))
    assert complaint.startswith("schema.x-kubernetes-validations[0].messageExpression: Invalid value: {")
    assert complaint.endswith(": messageExpression must evaluate to a string")


def test_old_self_is_rejected_on_uncorrelatable_list_items() -> None:
    item = obj({"name": TEXT}, "self.name == oldSelf.name", required=("name",))
    assert complaints(obj({"l": by_key(item)})) == []
    assert complaints(obj({"l": array(item)})) == [
        "schema.properties[l].items.x-kubernetes-validations[0].rule: Invalid value: "
        '"self.name == oldSelf.name": oldSelf cannot be used on the uncorrelatable portion of the schema within '
        "schema.properties[l]"
    ]


_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


class TestEstimates:
    def test_nested_loops_over_unbounded_list_exceed_cost_budget(self) -> None:
        free = array(Schema(type="string"), max_items=None)
        free.max_items = None
        found = complaints(obj({"l": free}, "self.l.all(x, self.l.all(y, x == y))"))
        assert found[0] == (
            f"schema.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more "
            f"than 100x {_ADVICE}"
        )
        assert found[-1] == (
            "schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds "
            f"budget by factor of more than 100x {_ADVICE}"
        )

    def test_bounded_list_keeps_nested_loop_within_cost_budget(self) -> None:
        assert complaints(obj({"l": array(TEXT)}, "self.l.all(x, self.l.all(y, x == y))")) == []

    def test_cost_estimate_multiplies_by_rule_invocations(self) -> None:
        text = Schema(type="string", max_length=1000, rules=rules("self.matches('^[a-z0-9]+(-[a-z0-9]+)*$')"))
        assert complaints(obj({"l": array(text, max_items=10)})) == []
        (found, *_) = complaints(obj({"l": array(text, max_items=10_000)}))
        assert "estimated rule cost exceeds budget by factor of 2.4x" in found

    def test_total_rule_cost_can_exceed_schema_budget(self) -> None:
        costly = array(Schema(type="string", max_length=10), max_items=900)
        costly.rules = rules("self.all(x, self.all(y, x != y))")
        found = complaints(obj({f"p{n}": costly for n in range(20)}))
        assert sum("contributed to estimated rule cost total" in complaint for complaint in found) == 4
        assert found[-1].startswith("schema: Forbidden: x-kubernetes-validations estimated rule cost total")


class TestRunningCosts:
    def test_rule_exceeding_call_cost_limit_fails(self) -> None:
        loops = "self.all(x, self.all(y, x != y || x == y))"
        schema = obj({"l": array(INT, Rule(rule=loops, message="m"), max_items=1000)})
        assert refusals(schema, {"l": list(range(1000))}) == [
            "l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation "
            "rules will be run due to call cost exceeds limit for rule: m"
        ]

    def test_rules_of_an_object_share_a_runtime_cost_budget(self) -> None:
        loop = "self.all(x, self.all(y, x != y || x == y))"
        schema = obj({"l": array(INT, *[Rule(rule=loop, message="m")] * 15, max_items=400)})
        assert refusals(schema, {"l": list(range(400))})[-1].endswith(
            "validation failed due to running out of cost budget, no further validation rules will be run"
        )
        assert OBJECT_BUDGET == 10_000_000

    def test_huge_list_range_raises_cost_exceeded(self) -> None:
        with pytest.raises(CostExceeded):
            evaluate("lists.range(1000000000000000000).size() > 0")


def test_schema_without_rules_compiles_to_none() -> None:
    assert compile_rules(obj({"a": INT}), "schema") == (None, [])


def test_recursive_schema_with_rules_is_rejected() -> None:
    knot = obj({})
    knot.properties = {"inner": knot, "items": array(knot)}
    assert not has_rules(knot)
    knot.rules = rules("true")
    compiled, errors = compile_rules(knot, "schema")
    assert compiled is None
    assert [str(error) for error in errors] == [
        'schema: Invalid value: "": schema is nested too deeply for x-kubernetes-validations'
    ]


def test_ruleset_is_reusable_after_a_failed_validation() -> None:
    compiled = ruleset(obj({"a": INT}, "self.a / self.a == 1"))
    assert compiled.validate({"a": 0})
    assert compiled.validate({"a": 2}) == []
