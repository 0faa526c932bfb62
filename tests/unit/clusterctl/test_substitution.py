"""Variables in templates. What clusterctl itself makes of them is in tests/interop/test_generate.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.clusterctl.generate import in_namespace
from remuda.clusterctl.substitution import BadTemplate, MissingVariables, substitute, variables

VALUES = {"A": "foo", "EMPTY": "", "PATH_": "a/b/c.yaml"}


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("${A}", "foo"),
        ("${ A }", "foo"),
        ("$A $ $$A $${A} $$", "$A $ $A ${A} $"),
        ("${B:=bee} ${B:-bee} ${B=bee}", "bee bee bee"),
        ("${EMPTY:=x} ${EMPTY:-x} ${EMPTY=x} [${EMPTY}]", "x x x []"),
        ("${B:=} ${B:-}|", " |"),
        ('${B:=""}', '""'),
        ("${B:={x}}", "{x}"),
        ("${B:=${A}-${C:=sea}}", "foo-sea"),
        ("${B:=x}${B}", "xx"),
        ("${A^^} ${A,,} ${A^} ${A,}", "FOO foo Foo foo"),
        ("${A:1} ${A:1:1} ${#A}", "oo o 3"),
        ("${A#f} ${A##f*} ${A%o} ${A%%o*} ${A%x}", "oo  fo f foo"),
        ("${A/o/x} ${A//o/x} ${A/#f/x} ${A/%o/x} ${A/o}", "fxo fxx xoo fox fo"),
        ("${PATH_##*/} ${PATH_%%/*} ${PATH_%/*} ${PATH_#*/}", "c.yaml a a/b b/c.yaml"),
    ],
)
def test_supported_variable_expressions_are_substituted(template: str, made: str) -> None:
    assert substitute(template, VALUES) == made


@pytest.mark.parametrize("template", ["${A", "${}", "${A:?x}", "${A:+x}", "${A-x}", "${a.b}", "${#A:1}", "${A^x}"])
def test_unsupported_variable_expression_is_rejected_with_line(template: str) -> None:
    with pytest.raises(BadTemplate, match="line 2"):
        substitute(f"\n{template}\n", VALUES)


def test_missing_variables_are_listed_once_without_unused_defaults() -> None:
    with pytest.raises(MissingVariables) as told:
        substitute("${Z} ${Y} ${Z} ${X:=${W}} ${A:=${V}}", VALUES)
    assert told.value.names == ["W", "Y", "Z"]


def test_variable_value_is_not_expanded_again() -> None:
    assert substitute("${A}", {"A": "${B} $$"}) == "${B} $$"


@given(st.text(st.characters(exclude_characters="$")))
def test_text_without_dollar_is_unchanged(text: str) -> None:
    assert variables(text) == {}
    assert substitute(text, {}) == text


@given(st.text())
def test_arbitrary_template_raises_only_documented_errors(text: str) -> None:
    for template in (text, f"${{{text}}}", f"${{A{text}}}"):
        try:
            substitute(template, VALUES)
        except (BadTemplate, MissingVariables):
            pass


def test_namespaced_objects_are_moved_to_target_namespace() -> None:
    given = [("v1", "Namespace"), ("v1", "Secret"), ("rbac.authorization.k8s.io/v1", "ClusterRole")]
    objects = [{"apiVersion": version, "kind": kind, "metadata": {"name": "x"}} for version, kind in given]
    metadata = [one["metadata"] for one in in_namespace(objects, "team")]
    assert metadata == [{"name": "team"}, {"name": "x", "namespace": "team"}, {"name": "x"}]
