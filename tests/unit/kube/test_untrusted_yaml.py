"""YAML of tenants and nodes ends neither the process nor its memory."""

from __future__ import annotations

import pytest
import yaml

from remuda.kube.untrusted_yaml import DEEPEST, TooComplex, load


def merge_bomb(levels: int) -> str:
    """Each level merges the one before twice: 2 to the power of `levels` entries."""
    lines = ["a0: &a0 {k: v}"]
    lines += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: v}}" for n in range(1, levels)]
    return "\n".join(lines)


def test_valid_yaml_documents_are_loaded() -> None:
    text = "defaults: &d {a: 1}\nuse:\n  <<: *d\n  b: [1, 2]\nagain: *d\n"
    assert load(text) == {"defaults": {"a": 1}, "use": {"a": 1, "b": [1, 2]}, "again": {"a": 1}}
    assert load(text.encode()) == load(text)
    assert load("") is None


@pytest.mark.parametrize("end", ["", "]" * 200_000])
def test_deeply_nested_yaml_is_rejected(end: str) -> None:
    """The C composer would end the process."""
    with pytest.raises(TooComplex, match="nested more than"):
        load("[" * 200_000 + end)
    assert load("[" * DEEPEST + "]" * DEEPEST) is not None


def test_yaml_merge_bomb_is_rejected() -> None:
    with pytest.raises(TooComplex, match="merge keys"):
        load(merge_bomb(64))
    assert len(load(merge_bomb(8))["a7"]) == 8


def test_yaml_aliases_are_not_expanded() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    assert load("\n".join(lines))["a0"] == ["x"]


def test_broken_documents_raise_yaml_errors() -> None:
    with pytest.raises(yaml.YAMLError):
        load("a: [")


@pytest.mark.parametrize("value", ["2020-99-01", "!!bool x", "!!timestamp x", "!!int x", "!!float ''", "!!binary é"])
def test_yaml_value_of_wrong_type_raises_yaml_error(value: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load(f"a: {value}")


@pytest.mark.parametrize("use", ["b: [{}]", "b: {{<<: [{{a: *x}}], c: [{}]}}"])
def test_long_yaml_text_with_many_aliases_is_rejected(use: str) -> None:
    """Each alias of a text is written out when the document is written again."""
    with pytest.raises(TooComplex, match="repeat too much text"):
        load(f"a: &x {'y' * 30_000}\n" + use.format(",".join(["*x"] * 9000)))
