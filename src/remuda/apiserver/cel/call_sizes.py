"""Cost and result size of single calls, for the cost estimate.

Functions that are not listed cost 1, and their result size is unknown. Listed overloads take precedence over functions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING

from remuda.apiserver.cel.ast import AstNode, Call, Constant
from remuda.apiserver.cel.cost import LIST_BASE, MAX_UNITS, REGEX_FACTOR, STRING_FACTOR
from remuda.apiserver.cel.sizes import ONE, ZERO, Estimate, Range, exactly

if TYPE_CHECKING:
    from remuda.apiserver.cel.estimate import Estimator

_MAX_NAME_FORMAT_REGEX = 128
_MAX_FORMAT = 64

CallEstimator = Callable[["Estimator", Call, AstNode | None, str], Estimate | None]


def _read_first(twice: bool = False, *, sized: bool) -> CallEstimator:
    factor = STRING_FACTOR * (2 if twice else 1)

    def estimator(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
        subject = target or (node.args[0] if node.args else None)
        if subject is None:
            return None
        size = est.size_or_unknown(subject)
        return Estimate(size.scaled(factor), size if sized else None)

    return estimator


def _traversal(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if target is None:
        return None
    size, item = est.size_or_unknown(target), est.item_size(target)
    if item is None:  # a string has no items
        return Estimate(size.scaled(STRING_FACTOR))
    each = ONE
    if est.type_of(target).params[0].kind in ("string", "bytes"):
        each = each.plus(item.scaled(STRING_FACTOR))
    return Estimate(size.times(each))


def _replace(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if target is None:
        return None
    size, old, new = est.size_or_unknown(target), *(est.size_or_unknown(arg) for arg in node.args[:2])
    most, kept_most = _replaced(size.high, old.low, new.high <= old.low)
    least, kept_least = _replaced(size.low, old.high, old.high <= new.low)
    count, kept = Range(least, most), Range(kept_least, kept_most)
    return Estimate(size.scaled(2 * STRING_FACTOR), count.times(new).plus(kept))


def _replaced(size: int, old: int, unchanged: bool) -> tuple[int, int]:
    """Return how often a text of this size can have a match replaced, and how much of the text stays."""
    if old == 0:
        return min(size + 1, MAX_UNITS), size
    if unchanged:
        return 0, size
    return min(ceil(size / old), MAX_UNITS), 0


def _split(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if target is None:
        return None
    size = est.size_or_unknown(target)
    most = size.high
    if len(node.args) > 1 and isinstance(node.args[1], Constant) and type(node.args[1].value) is int:
        most = node.args[1].value % (1 << 64)
    return Estimate(size.scaled(2 * STRING_FACTOR), Range(0, most))


def _join(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if target is None:
        return None
    count, item = est.size_or_unknown(target), est.item_size(target)
    size = count.times(item) if item else ZERO
    if node.args:
        separators = Range(max(count.low - 1, 0), max(count.high - 1, 0))
        size = size.plus(est.size_or_unknown(node.args[0]).times(separators))
    return Estimate(size.scaled(STRING_FACTOR), size)


def _regex(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if target is None:
        return None
    size = est.size_or_unknown(target)
    text = size.plus(ONE).scaled(STRING_FACTOR)
    pattern = est.size_or_unknown(node.args[0]).scaled(REGEX_FACTOR)
    return Estimate(text.times(pattern), None if overload == "matches_string" else Range(0, size.high))


def _contains(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if target is None:
        return None
    text = est.size_or_unknown(target).scaled(STRING_FACTOR)
    return Estimate(text.times(est.size_or_unknown(node.args[0]).scaled(STRING_FACTOR)))


def _ip(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if overload == "cidr_ip" or not node.args:
        return Estimate(ONE)
    return Estimate(est.size_or_unknown(node.args[0]).scaled(STRING_FACTOR))


def _containment(network: bool) -> CallEstimator:
    def estimator(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
        address = Range(4, 16)
        cost = address.plus(address).scaled(STRING_FACTOR)
        if network:
            cost = cost.plus(address.scaled(STRING_FACTOR)).plus(ONE)
        if overload in ("cidr_contains_ip_string", "cidr_contains_cidr_string"):
            cost = cost.plus(est.size_or_unknown(node.args[0]).scaled(STRING_FACTOR))
        return Estimate(cost)

    return estimator


def _validate(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    size = est.size_or_unknown(node.args[0])
    return Estimate(size.scaled(STRING_FACTOR).scaled(_MAX_NAME_FORMAT_REGEX * REGEX_FACTOR))


def _in_list(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    return Estimate(est.size_or_unknown(node.args[1]))


def _compared(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    a, b = (est.size_or_unknown(arg) for arg in node.args)
    left, right = (est.type_of(arg) for arg in node.args)
    if left == right and overload == "equals":
        if left.name in ("net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"):
            return Estimate(ONE)
        if left.name == "kubernetes.NamedFormat":
            return Estimate(Range(1, _MAX_FORMAT).scaled(STRING_FACTOR))
        if left.name == "kubernetes.URL":
            known = est.size(node.args[1])
            return Estimate(Range(1, known.high if known else 1).scaled(STRING_FACTOR))
    most = min(a.high, b.high)
    return Estimate(Range(min(most, 1), most).scaled(STRING_FACTOR))


def _added(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    left, right = node.args
    size = est.size_or_unknown(left).plus(est.size_or_unknown(right))
    entries = est.entry_size(left)
    joined = entries.union(est.entry_size(right)) if entries else None
    if joined is not None:
        est.entries[node] = joined
    return Estimate(ONE if overload == "add_list" else size.scaled(STRING_FACTOR), size)


def _to_bytes(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    size = est.size_or_unknown(node.args[0])
    return Estimate(size.scaled(STRING_FACTOR), Range(size.low, size.high * 4 % (1 << 64)))


def _to_text(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    size = est.size_or_unknown(node.args[0])
    return Estimate(size.scaled(STRING_FACTOR), Range(size.low // 4, size.high))


def _quoted(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    size = est.size_or_unknown(node.args[0])
    return Estimate(size.scaled(STRING_FACTOR), Range(size.low + 2, (size.high * 2 + 2) % (1 << 64)))


def _prefix(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    return Estimate(est.size_or_unknown(node.args[0]).scaled(STRING_FACTOR))


def _formatted(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    return Estimate(est.size_or_unknown(target).scaled(STRING_FACTOR)) if target is not None else None


def _allocating(factor: float, size: Range) -> Estimate:
    return Estimate(size.scaled(factor).plus(exactly(1 + LIST_BASE)), size)


def _literal_count(arg: AstNode, default: int) -> int:
    known = isinstance(arg, Constant) and type(arg.value) is int
    return max(arg.value, 0) if known and isinstance(arg, Constant) else default


def _slice(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if target is None:
        return None
    start = _literal_count(node.args[0], 0)
    end = _literal_count(node.args[1], est.size_or_unknown(target).high)
    return _allocating(1, exactly((end - start) % (1 << 64)))


def _range(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    return _allocating(1, exactly(_literal_count(node.args[0], MAX_UNITS)))


def _reversed(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    return _allocating(1, est.size_or_unknown(target)) if target is not None else None


def _flattened(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if target is None:
        return None
    depth = _literal_count(node.args[0], MAX_UNITS) if node.args else 1
    return _allocating(float(depth), est.size_or_unknown(target))


def _distinct(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    if target is None:
        return None
    size = est.size_or_unknown(target)
    return _allocating(2.0, size.times(size))


def _sorted(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
    by = node.args[0] if node.args else target
    if by is None:
        return None
    size = est.size_or_unknown(by)
    text = overload.startswith(("list_string", "list_bytes"))
    return _allocating(2.0 + (STRING_FACTOR if text else 0), size.times(size))


def _sets(factor: float) -> CallEstimator:
    def estimator(est: Estimator, node: Call, target: AstNode | None, overload: str) -> Estimate | None:
        product = est.size_or_unknown(node.args[0]).times(est.size_or_unknown(node.args[1]))
        return Estimate(product.scaled(factor).plus(ONE))

    return estimator


BY_FUNCTION: dict[str, CallEstimator] = {
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _traversal),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _read_first(sized=True)),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "quantity", "isQuantity"), _read_first(sized=False)),
    **dict.fromkeys(("semver", "isSemver"), _read_first(sized=False)),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _regex,
    "findAll": _regex,
    "ip": _ip,
    "ip.isCanonical": _read_first(twice=True, sized=False),
    "containsIP": _containment(network=False),
    "containsCIDR": _containment(network=True),
    "validate": _validate,
}
BY_OVERLOAD: dict[str, CallEstimator] = {
    **dict.fromkeys(("equals", "not_equals", "compare_string", "compare_bytes"), _compared),
    **dict.fromkeys(("add_string", "add_bytes", "add_list"), _added),
    **dict.fromkeys(("starts_with_string", "ends_with_string"), _prefix),
    "in_list": _in_list,
    "matches_string": _regex,
    "contains_string": _contains,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_text,
    "strings_quote": _quoted,
    "string_format": _formatted,
    "list_slice": _slice,
    "lists_range": _range,
    "list_reverse": _reversed,
    "list_flatten": _flattened,
    "list_flatten_int": _flattened,
    "list_distinct": _distinct,
    "sets_contains": _sets(1),
    "sets_intersects": _sets(1),
    "sets_equivalent": _sets(2),
}
for _kind in ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"):
    BY_OVERLOAD[f"list_{_kind}_sort"] = _sorted
    BY_OVERLOAD[f"list_{_kind}_sort_by"] = _sorted
