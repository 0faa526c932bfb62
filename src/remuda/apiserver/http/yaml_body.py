"""YAML bodies, as kube-apiserver reads them: YAML whose every value is also JSON.

Timestamps and base-60 numbers stay strings, `1e3` is a number, keys become strings. Aliases are followed, but a
document that they enlarge excessively is rejected before it is expanded. Duplicate keys are reported for field
validation.

Nesting is limited before the document is composed: the composer is C code that recurses without a limit, and a hostile
document would crash the process. The number of values is limited too, because this is the slowest of all decoders;
larger objects must be sent as JSON.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from remuda.apiserver.schema.depth import MAX_DEPTH, TOO_DEEP
from remuda.kube import untrusted_yaml

_FREE_NODES = 50_000  # nodes that aliases may add to any document, besides ten times its own nodes
_MOST_TEXT = 3 * 1024 * 1024  # characters of all texts together: the maximum of a body without aliases
_EXCESSIVE = "yaml: document contains excessive aliasing"
_NOT_JSON = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_INT = re.compile(r"^(?:[-+]?0b[0-1_]+|[-+]?0o?[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$")
_FLOAT = re.compile(
    r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
)


class YamlError(ValueError):
    pass


class _Loader(yaml.CSafeLoader):
    duplicates: list[str]
    merged = 0
    most_nodes = 0

    def flatten_mapping(self, node: Any) -> None:
        """Count the entries of a mapping before it is merged into another, because merges multiply them."""
        self.merged += len(node.value)
        if self.merged > self.most_nodes:
            raise YamlError(_EXCESSIVE)
        super().flatten_mapping(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            self.flatten_mapping(node)
            self._note_duplicates(node)
        return super().construct_mapping(node, deep=deep)

    def _note_duplicates(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                self.duplicates.append(f'line {key.start_mark.line + 1}: key "{key.value}" already set in map')
            seen.add(key.value)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NOT_JSON]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


def decode_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Return the value of the first document, and a complaint for each duplicate key. Raise YamlError."""
    try:
        written = _count_shallow(body)
        loader = _Loader(body)
        loader.duplicates = []
        loader.most_nodes = _FREE_NODES + 10 * written
        try:
            value = loader.get_single_data()
        finally:
            loader.dispose()
        return _json_value(value, [loader.most_nodes, _MOST_TEXT]), loader.duplicates
    except yaml.YAMLError as error:
        raise YamlError(_one_line(error)) from None
    except RecursionError:
        raise YamlError(TOO_DEEP) from None
    except YamlError:
        raise
    except (AttributeError, LookupError):  # raised by PyYAML for a scalar with a tag of another type (`!!bool x`)
        raise YamlError("yaml: cannot decode a scalar as the type that its tag names") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise YamlError(f"yaml: {error}") from None


def _count_shallow(body: bytes) -> int:
    """Count the nodes that are written in a document. Raises YamlError if it is too deep or too large."""
    try:
        return sum(1 for _ in untrusted_yaml.events(body, deepest=MAX_DEPTH))
    except untrusted_yaml.TooLarge:
        most = untrusted_yaml.MOST_EVENTS
        raise YamlError(f"yaml: document has more than {most} values; send it as JSON") from None
    except untrusted_yaml.TooDeep:
        raise YamlError(TOO_DEEP) from None


def _one_line(error: yaml.YAMLError) -> str:
    """Format an error on one line. Positions count from 0, as in kube-apiserver's parser, except in scanner errors."""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    marks = (getattr(error, name, None) for name in ("problem_mark", "context_mark"))
    line = next((mark.line for mark in marks if mark is not None and mark.line), 0)
    if isinstance(error, yaml.scanner.ScannerError):
        line += 1
    return f"yaml: line {line}: {problem}" if line else f"yaml: {problem}"


def _json_value(value: Any, left: list[int]) -> Any:
    """Return the value as JSON. `left`: nodes and characters that remain allowed. Aliases of a long text cost nothing
    until the object is encoded, and would then fill the memory.
    """
    left[0] -= 1
    if isinstance(value, str | bytes):
        left[1] -= len(value)
    elif isinstance(value, dict):
        left[1] -= sum(len(key) for key in value if isinstance(key, str))
    if left[0] < 0 or left[1] < 0:
        raise YamlError(_EXCESSIVE)
    if isinstance(value, dict):
        return {_key(k): _json_value(v, left) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(v, left) for v in value]
    if isinstance(value, set):
        return {_key(k): None for k in value}
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"unsupported value: {value}")
    return value


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    raise ValueError(f"unsupported map key of type: {type(key).__name__}")


def encode_yaml(value: Any) -> bytes:
    text: str = yaml.dump(value, Dumper=yaml.CSafeDumper, allow_unicode=True, width=1_000_000)
    return text.encode()
