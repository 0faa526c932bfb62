"""The parser: misplaced tokens as upstream words them, bounds, and that no text breaks it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from remuda.apiserver.cel import ast
from remuda.apiserver.cel.check import check
from remuda.apiserver.cel.source import CelSyntaxError
from remuda.apiserver.cel.syntax import MAX_LENGTH, parse

_START = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)


def _first_complaint(source: str) -> str:
    with pytest.raises(CelSyntaxError) as caught:
        parse(source)
    return str(caught.value).split("\n")[0].removeprefix("ERROR: <input>:")


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("1 +", f"1:4: Syntax error: mismatched input '<EOF>' expecting {_START}"),
        ("1 + + 2", f"1:5: Syntax error: extraneous input '+' expecting {_START}"),
        ("1 2", "1:3: Syntax error: extraneous input '2' expecting <EOF>"),
        ("1 2 3", "1:3: Syntax error: mismatched input '2' expecting <EOF>"),
        ("self.", "1:6: Syntax error: no viable alternative at input '.'"),
        ("self..a", "1:6: Syntax error: no viable alternative at input '..'"),
        ("(1 + 2", "1:7: Syntax error: missing ')' at '<EOF>'"),
        ("f(1", "1:4: Syntax error: missing ')' at '<EOF>'"),
        ("f(1,)", f"1:5: Syntax error: mismatched input ')' expecting {_START}"),
        ("a[1", "1:4: Syntax error: missing ']' at '<EOF>'"),
        ("[1, 2", "1:6: Syntax error: mismatched input '<EOF>' expecting {']', ','}"),
        ("[1,,2]", "1:4: Syntax error: mismatched input ',' expecting ']'"),
        ("{1: 2", "1:6: Syntax error: mismatched input '<EOF>' expecting {'}', ','}"),
        ("{1 2}", "1:4: Syntax error: missing ':' at '2'"),
        ("{'a'}", "1:5: Syntax error: mismatched input '}' expecting ':'"),
        ("a ? b", "1:6: Syntax error: mismatched input '<EOF>' expecting ':'"),
        ("a = b", "1:3: Syntax error: token recognition error at: '= '"),
        ("'abc", "1:1: Syntax error: token recognition error at: ''abc'"),
        ('"\\q"', "1:1: Syntax error: token recognition error at: '\"\\q'"),
        ("@", "1:1: Syntax error: token recognition error at: '@'"),
        ("as.b", "1:1: reserved identifier: as"),
        ("b'\\u1234'", "1:1: unable to unescape string"),
        ("'\\ud800'", "1:1: invalid unicode code point"),
        ("a.`b`", "1:3: unsupported syntax: '`'"),
    ],
)
def test_syntax_error_message_matches_upstream(source: str, complaint: str) -> None:
    assert _first_complaint(source) == complaint


def test_operator_precedence_matches_c() -> None:
    node = parse("a || b && c == d + e * -f")
    assert isinstance(node, ast.Call)
    assert node.function == "_||_"
    conjunction = node.args[1]
    assert isinstance(conjunction, ast.Call)
    assert conjunction.function == "_&&_"
    comparison = conjunction.args[1]
    assert isinstance(comparison, ast.Call)
    assert comparison.function == "_==_"
    assert isinstance(comparison.args[1], ast.Call)
    assert comparison.args[1].function == "_+_"


def test_long_conjunction_parses_to_flat_call() -> None:
    node = parse(" && ".join(["a"] * 2000))
    assert isinstance(node, ast.Call)
    assert len(node.args) == 2000


@pytest.mark.parametrize(
    "source",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "[" * 5000,
        "1" + " + 1" * 5000,
        "a" + ".b" * 5000,
        "{1:" * 500,
        "a ? b : " * 5000,
        "a[" * 5000,
        "f(" * 5000,
        "x.all(a," * 500,
    ],
)
def test_expression_nesting_depth_is_bounded(source: str) -> None:
    assert "recursion limit exceeded" in _first_complaint(source)


@pytest.mark.parametrize(("source", "value"), [("!" * 5000 + "true", True), ("-" * 5000 + "1", 1)])
def test_repeated_unary_operators_cancel_out(source: str, value: object) -> None:
    node = parse(source)
    assert isinstance(node, ast.Constant)
    assert node.value == value


def test_expression_length_is_bounded() -> None:
    assert "expression code point size exceeds limit" in _first_complaint("1" * (MAX_LENGTH + 1))


_TEXT = r"""a b self . ?. [ ] [? ( ) { } , : ? + - * / % ! && || == != < <= > >= in true false null 1 2u 0x1F 1.5 1e3
'x' "y" b'z' r'\' '''t''' has( .all(x, .map( .exists( size( optional.of( `q` // \ ' " é @ # $ & | = if namespace
__dash__ 99999999999999999999 'unterminated"""
_PIECES = st.sampled_from([*_TEXT.split(), "\n", " "])


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=25).map(" ".join), st.lists(_PIECES).map("".join)))
@example("a.b.")
@example("-")
@example("--")
@example("!-1")
@example("!-")
@example("!-x")
@example("a{")
@example(".")
@example("{?")
@example("x.all(y")
def test_arbitrary_text_parses_or_raises_cel_syntax_error(source: str) -> None:
    complaint = ""
    try:
        check(source, parse(source), {})
    except CelSyntaxError as caught:
        complaint = str(caught)
    assert complaint.startswith("ERROR: <input>:") or not complaint
