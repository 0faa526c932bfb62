"""CEL rules of definitions: parsed, checked, estimated and evaluated."""

from __future__ import annotations

from remuda.apiserver.cel.rules import compile_rules
from remuda.kube.schema import Rule, Schema
from tests.fuzz.source import Source
from tests.unit.apiserver.cel.shapes import INT, TEXT, array, obj

_LONGEST_COMPLAINTS = 64 * 1024
_PIECES = (
    *("self", "oldSelf", ".", "spec", "n", "s", "list", "map", "(", ")", "[", "]", "{", "}", ",", ":", "?", "+", "-"),
    *("*", "/", "%", "<", ">=", "==", "!=", "&&", "||", "!", " in ", "has(", ".all(x, ", ".exists(x, ", ".map(x, x)"),
    *(".filter(x, x > 1)", ".size()", ".matches('a+')", ".split(',')", ".replace('a','bb')", "'a'", "b'\\xff'", '"""'),
    *("1", "-9223372036854775808", "0u", "1.5", "1e308", "true", "null", "x", "duration('1h')", "timestamp(self.s)"),
    *("quantity('1Gi')", "ip('::1')", "url('http://a')", "optional.of(1)", "cel.bind(y, ", "type(", "int(", "string("),
    *(".format([self.n])", ".lowerAscii()", ".sum()", ".indexOf(1)", "size(", "dyn(", "isQuantity(", "semver('1.0.0')"),
)


def check(data: bytes) -> None:
    """Raise if a rule is neither compiled nor refused, or fails in another way than rules do."""
    source = Source(data)
    free = source.flag()
    if free:
        text = source.rest().decode("utf-8", "replace")
    else:
        text = "".join(source.pick(_PIECES) for _ in range(source.byte() % 48))
    if len(text) > 2000:
        return
    rule = Rule(rule=text, message_expression=text if source.flag() else "")
    spec = obj(
        {"n": INT, "s": TEXT, "list": array(INT), "map": Schema(type="object", additional=TEXT, max_properties=8)}, rule
    )
    compiled, wrong = compile_rules(obj({"spec": spec}), "schema")
    assert sum(len(str(one)) for one in wrong) <= _LONGEST_COMPLAINTS
    if compiled is None:
        return
    for value in ({}, {"n": 3, "s": "a,b", "list": [1, 2, 3], "map": {"a": "b"}}, {"n": -(2**63), "s": "\ud7ff"}):
        found = compiled.validate({"spec": value}, {"spec": {"n": 1}})
        assert sum(len(str(one)) for one in found) <= _LONGEST_COMPLAINTS
