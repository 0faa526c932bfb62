"""Macros: calls that look like functions, and decide which of their arguments run, how often and with which variables.

The parser passes each call to `expand` right after parsing it. `expand` returns other calls unchanged. It reports a
wrong use of a macro through `complain`.
"""

from __future__ import annotations

from collections.abc import Callable

from remuda.apiserver import ApiServerError
from remuda.apiserver.cel.ast import AstNode, Bind, Call, Constant, Fold, FoldKind, Ident, Select

Complain = Callable[[int, str], None]

ACCUMULATOR = "__result__"
_SORT_INPUT = "@__sortBy_input__"


class _Misuse(ApiServerError):
    def __init__(self, at: int, text: str) -> None:
        super().__init__(text)
        self.at = at


def expand(call: Call, complain: Complain) -> AstNode:
    member = call.target is not None
    expander = _MACROS.get((call.function, len(call.args), member))
    if expander is None:
        return call
    try:
        return expander(call)
    except _Misuse as misuse:
        complain(misuse.at, str(misuse))
        return Constant(call.at, None)


def _target(call: Call) -> AstNode:
    assert call.target is not None
    return call.target


def _variable(arg: AstNode) -> str:
    if not isinstance(arg, Ident) or arg.name.startswith("."):
        raise _Misuse(arg.at, "argument must be a simple name")
    if arg.name in (ACCUMULATOR, "@result"):
        raise _Misuse(arg.at, "iteration variable overwrites accumulator variable")
    return arg.name


def _two_variables(call: Call) -> tuple[str, str]:
    first, second = _variable(call.args[0]), _variable(call.args[1])
    if first == second:
        raise _Misuse(call.args[1].at, f"duplicate variable name: {first}")
    return first, second


def _has(call: Call) -> AstNode:
    arg = call.args[0]
    if not isinstance(arg, Select) or arg.test or arg.optional:
        raise _Misuse(arg.at, "invalid argument to has() macro")
    return Select(call.at, arg.operand, arg.field, test=True)


def _over_one(kind: FoldKind) -> Callable[[Call], AstNode]:
    def expander(call: Call) -> AstNode:
        keep = call.args[1] if len(call.args) == 3 else None
        return Fold(call.at, kind, _target(call), _variable(call.args[0]), "", keep, call.args[-1])

    return expander


def _over_two(kind: FoldKind) -> Callable[[Call], AstNode]:
    def expander(call: Call) -> AstNode:
        first, second = _two_variables(call)
        keep = call.args[2] if len(call.args) == 4 else None
        return Fold(call.at, kind, _target(call), first, second, keep, call.args[-1])

    return expander


def _sort_by(call: Call) -> AstNode:
    target, at = _target(call), call.at
    if isinstance(target, Constant):
        raise _Misuse(
            target.at, "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    keys = Fold(at, "map", Ident(at, _SORT_INPUT), _variable(call.args[0]), "", None, call.args[1])
    return Bind(at, _SORT_INPUT, target, Call(at, "@sortByAssociatedKeys", Ident(at, _SORT_INPUT), (keys,)))


def _opt_map(call: Call) -> AstNode:
    bound = _bound_value(call)
    return _if_present(call, Call(call.at, "optional.of", None, (bound,)))


def _opt_flat_map(call: Call) -> AstNode:
    return _if_present(call, _bound_value(call))


def _bound_value(call: Call) -> AstNode:
    variable = call.args[0]
    if not isinstance(variable, Ident):
        raise _Misuse(variable.at, f"{call.function}() variable name must be a simple identifier")
    return Bind(call.at, variable.name, Call(call.at, "value", _target(call), ()), call.args[1])


def _if_present(call: Call, then: AstNode) -> AstNode:
    at = call.at
    present = Call(at, "hasValue", _target(call), ())
    return Call(at, "_?_:_", None, (present, then, Call(at, "optional.none", None, ())))


# Key: name, number of arguments, and whether the macro has a receiver.
_MACROS: dict[tuple[str, int, bool], Callable[[Call], AstNode]] = {
    ("has", 1, False): _has,
    ("all", 2, True): _over_one("all"),
    ("exists", 2, True): _over_one("exists"),
    ("exists_one", 2, True): _over_one("exists_one"),
    ("existsOne", 2, True): _over_one("exists_one"),
    ("map", 2, True): _over_one("map"),
    ("map", 3, True): _over_one("map"),
    ("filter", 2, True): _over_one("filter"),
    ("all", 3, True): _over_two("all"),
    ("exists", 3, True): _over_two("exists"),
    ("exists_one", 3, True): _over_two("exists_one"),
    ("existsOne", 3, True): _over_two("exists_one"),
    ("transformList", 3, True): _over_two("transformList"),
    ("transformList", 4, True): _over_two("transformList"),
    ("transformMap", 3, True): _over_two("transformMap"),
    ("transformMap", 4, True): _over_two("transformMap"),
    ("transformMapEntry", 3, True): _over_two("transformMapEntry"),
    ("transformMapEntry", 4, True): _over_two("transformMapEntry"),
    ("sortBy", 2, True): _sort_by,
    ("optMap", 2, True): _opt_map,
    ("optFlatMap", 2, True): _opt_flat_map,
}
