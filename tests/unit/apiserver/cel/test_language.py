"""The language and its libraries, expression by expression, against what upstream's CEL made of them."""

from __future__ import annotations

import pytest

from remuda.apiserver.cel.source import CelSyntaxError
from remuda.apiserver.cel.values import CelError

from .expressions import COMPLAINTS, FAILURES, REFUSED, VALUES
from .notation import checked, evaluate, program, shown


@pytest.mark.parametrize(("source", "value", "cost"), VALUES)
def test_expression_value_and_cost_match_upstream(source: str, value: str, cost: int) -> None:
    spent = [0]
    assert shown(program(source).run(None, None, spent)) == value
    if cost >= 0:
        assert spent == [cost]


@pytest.mark.parametrize(("source", "failure"), FAILURES)
def test_evaluation_error_matches_upstream(source: str, failure: str) -> None:
    with pytest.raises(CelError) as caught:
        evaluate(source)
    assert str(caught.value) == failure


@pytest.mark.parametrize(("source", "failure"), REFUSED)
def test_failing_constant_subexpression_is_rejected_at_compile_time(source: str, failure: str) -> None:
    with pytest.raises(CelError) as caught:
        program(source)
    assert str(caught.value) == failure


@pytest.mark.parametrize(("source", "complaints"), COMPLAINTS)
def test_compile_errors_match_upstream(source: str, complaints: list[str]) -> None:
    with pytest.raises(CelSyntaxError) as caught:
        checked(source)
    assert [line for line in str(caught.value).split("\n") if line.startswith("ERROR")] == complaints


def test_compile_error_marks_position_under_source_line() -> None:
    with pytest.raises(CelSyntaxError) as caught:
        checked("1 == 1 &&\n\tfoo > 2")
    assert str(caught.value) == (
        "ERROR: <input>:2:2: undeclared reference to 'foo' (in container '')\n |  foo > 2\n | .^"
    )


def test_compile_error_marker_uses_wide_dots_for_wide_characters() -> None:
    with pytest.raises(CelSyntaxError) as caught:
        checked("'é' + 1")
    assert str(caught.value).endswith(" | 'é' + 1\n | .．..^")
