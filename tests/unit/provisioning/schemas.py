"""Any JSON that a structural schema lets pass, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

WORDS = st.sampled_from(
    ["", "a", "A b", "-", "..", "/x", "10m", "0s", "-1h", "1", "50%", "[1-3]", "[3-1]", "v1.36.4+k3s1", "v1.2.3+rke2r1",
     "SimConfig", "inPlaceOnly", "kube-system:x", "cattle-global-data:cc", "0 * * * *", "true", "{", "[", ": :", "\x00",
     "https://m.example", "-----BEGIN x", "YQ==", "x" * 300, "ü"]
)  # fmt: skip
TEXT = WORDS | st.text(max_size=8)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def of(schema: Json) -> st.SearchStrategy[Any]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return st.dictionaries(TEXT, ANYTHING, max_size=3) if schema.get("type") == "object" else ANYTHING
    if schema.get("x-kubernetes-int-or-string"):
        return st.integers(-2, 200) | TEXT
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "additionalProperties" in schema:
            return st.dictionaries(TEXT, of(schema["additionalProperties"]), max_size=2)
        case "object":
            properties = schema.get("properties", {})
            demanded = schema.get("required", [])
            return st.fixed_dictionaries(
                {name: of(properties[name]) for name in demanded},
                optional={name: of(inner) for name, inner in properties.items() if name not in demanded},
            )
        case "array":
            return st.lists(of(schema["items"]), max_size=3)
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema.get("minimum", -(2**40)), schema.get("maximum", 2**40))
        case "string":
            return TEXT.filter(lambda text: schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 10**6))
    raise AssertionError(f"a schema of another kind: {schema}")
