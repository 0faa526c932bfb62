"""What is read is read as PyYAML reads it; what is not read is refused with its line."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.yaml_subset import YamlError, load

_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zl", "Zp"]) | st.sampled_from("\n\t: #-'\"{}[],|>&*")
)
_SCALAR = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | _TEXT
_KEY = _TEXT.filter(lambda text: "\n" not in text and 0 < len(text) < 30)
_DOCUMENT = st.recursive(
    _SCALAR, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEY, inner, max_size=4), max_leaves=20
)


class _AsGoWrites(yaml.SafeDumper):
    """Text of several lines as a block, as Go's encoders write it."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_AsGoWrites.add_representer(str, _text)


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


@given(_DOCUMENT, st.sampled_from([None, True, False]), st.sampled_from([_AsGoWrites, _NoAliases]), st.booleans())
def test_pyyaml_output_is_parsed_back(document: Any, flow: bool | None, dumper: Any, start: bool) -> None:
    dumper.ignore_aliases = lambda self, data: True
    text = yaml.dump(
        document, Dumper=dumper, default_flow_style=flow, width=10**6, allow_unicode=True, explicit_start=start
    )
    assert load(text) == document


@given(_DOCUMENT)
def test_json_is_parsed_as_yaml(document: Any) -> None:
    assert load(json.dumps(document, indent=2)) == document


KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters:
- name: "agent"
  cluster:
    certificate-authority-data: LS0tLS1CRUdJTg==
    server: https://192.0.2.1:8443  # the manager
users:
- name: "agent"
  user: {token: 'a:b#c'}
contexts:
-
  name: agent
  context:
    user: agent
    cluster: agent
current-context: agent
"""

REGISTRIES = """\
---
mirrors:
  docker.io:
    endpoint:
      - "https://mirror.example.com:5000/v2/hub"
    rewrite:
      "^rancher/(.*)": "mirrored/$1"
  registry.example.com:5000:
    endpoint: ['https://a.example.com', "https://b.example.com"]
  "*":
    endpoint: [
      https://last.example.com,   # asked last
    ]
configs:
  mirror.example.com:5000:
    auth: {username: reader, password: "pa\\x73s: #1"}
    tls:
      ca_file: /etc/ca.pem
      insecure_skip_verify: false
  old.example.com:
    auth:
    tls: null
"""


@pytest.mark.parametrize("text", [KUBECONFIG, REGISTRIES], ids=["kubeconfig", "registries"])
def test_handwritten_yaml_files_match_pyyaml(text: str) -> None:
    assert load(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: |\n  one\n   two\n\n  three\nb: 1\n",
        "a: |-\n  one\n  # no comment\n\nb: >\n  folded\n  text\n\n  next\n",
        "a: >+\n  kept\n\n\nb: |2\n    two more\n",
        "- |\n  in a list\n- - nested\n  - list\n-\n  - deeper\n- key: value\n  other:\n  - x\n",
        "'quoted key': \"folded\n  over\n\n  lines\\\n  joined\"\n",
        "# only a comment\n",
        "",
        "a:\r\n  b: c\r\n",
        "plain: a - b, c] {d}\nurl: http://x:80/#y\n",
        "n: [1, -2, 3.5, .5, 1e3, ~, true, 'x', {a: {}}]\n",
        "one: 1\n...\nignored: [\n",
    ],
)
def test_rare_yaml_constructs_match_pyyaml(text: str) -> None:
    expected = yaml.safe_load(text.split("\n...")[0])
    if "1e3" in text:
        expected["n"][4] = 1000.0  # PyYAML wants a point in it; Go does not
    assert load(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "line 2: a duplicate key"),
        ("{a: 1, a: 2}", "line 1: a duplicate key"),
        ("a: &x 1\nb: *x\n", "line 1: begins with &"),
        ("a: 1\nb: *x\n", "line 2: begins with *"),
        ("*x: 1\n", "line 1: begins with *"),
        ("a: !!binary x\n", "line 1: begins with !"),
        ("[!x y]", "line 1: begins with !"),
        ("? a\n: b\n", "line 1: begins with ?"),
        ("a:\n\tb: 1\n", "line 2: a tab as indentation"),
        ("a: b\n  c\n", "line 2: text without quotes that goes on"),
        ("a: b: c\n", "line 1: a key or an item in the middle"),
        ("a:\n  b: 1\n c: 2\n", "line 3: "),
        ("- a\n  - b\n", "line 2: "),
        ("a: [1, 2\n", "ends within braces"),
        ("a: 'x\n", "ends within quotes"),
        ("a: 'x' y\n", "line 1: unexpected text after a value"),
        ('a: "\\q"\n', "line 1: an unknown escape"),
        ('a: "\\xzz"\n', "line 1: a wrong escape"),
        ("a: 1\n---\nb: 2\n", "line 2: "),
        ("a: 1\nb\n", "line 2: neither a key"),
        ("a: {b 1}\n", "line 1: a key without a colon"),
        ("a: [b c: d]\n", "line 1: a comma or ]"),
        ("a: | x\n", "line 1: unexpected text after"),
        ("[" * 5000, "line 1: nested too deeply"),
        ("\n".join(" " * n + "a:" for n in range(100)), "nested too deeply"),
    ],
)
def test_ambiguous_yaml_is_rejected_with_line_number(text: str, said: str) -> None:
    with pytest.raises(YamlError, match="line") as caught:
        load(text)
    assert said in str(caught.value)


def test_number_with_leading_zero_is_parsed_as_string() -> None:
    assert load("mode: 0644\n") == {"mode": "0644"}


@given(st.text(st.sampled_from("ab:-#'\"{}[],|> \n\t&*!\\x0"), max_size=60))
def test_arbitrary_text_parses_or_raises_yaml_error(text: str) -> None:
    try:
        load(text)
    except YamlError:
        pass
