"""Parser: turns the text of an expression into its tree.

It uses precedence climbing over the token list, so that nesting takes few Python frames. Nesting and length are
limited. Any text gives a tree or a `CelSyntaxError`. Parsing stops at the first misplaced token.
"""

from __future__ import annotations

from collections.abc import Callable

from remuda.apiserver import ApiServerError
from remuda.apiserver.cel import lexer, macros
from remuda.apiserver.cel.ast import AstNode, Call, Constant, Ident, ListOf, MapEntry, MapOf, Message, Select, children
from remuda.apiserver.cel.lexer import LexerToken, LiteralError
from remuda.apiserver.cel.source import CelSyntaxError, Complaint, render

MAX_LENGTH = 100_000  # code points
MAX_NESTING = 60  # nested brackets
MAX_DEPTH = 250  # depth of the tree; a long chain of one operator is deep as well

RESERVED = frozenset(
    "as break const continue else for function if import let loop package namespace return var void while".split()  # noqa: SIM905
)

_RELATIONS = {"<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "==": "_==_", "!=": "_!=_", "in": "@in"}
_PRECEDENCE = {
    **{op: (1, name) for op, name in _RELATIONS.items()},
    "+": (2, "_+_"),
    "-": (2, "_-_"),
    "*": (3, "_*_"),
    "/": (3, "_/_"),
    "%": (3, "_%_"),
}
_START = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_START_OR_CLOSE = _START.replace("'(', ", "'(', ')', ")
_START_OR_OPTIONAL = _START.replace("'!', ", "'!', '?', ")
_STARTERS = frozenset(
    ["[", "{", "(", ".", "-", "!", "true", "false", "null", "float", "int", "uint", "string", "bytes", "ident"]
)


TermParser = Callable[[], AstNode]
ItemParser = Callable[[], None]


def parse(source: str) -> AstNode:
    """Parse an expression. Raise CelSyntaxError with all errors, in CEL's wording and layout."""
    if len(source) > MAX_LENGTH:
        raise CelSyntaxError(
            f"ERROR: <input>:-1:0: expression code point size exceeds limit: size: {len(source)}, limit {MAX_LENGTH}"
        )
    found, complaints = lexer.tokens(source)
    parser = _Parser(found, complaints)
    try:
        node = parser.whole()
    except _Stop:
        node = None
    if complaints or node is None:
        raise CelSyntaxError(render(source, complaints))
    if too_deep(node):
        raise CelSyntaxError(f"ERROR: <input>:-1:0: expression recursion limit exceeded: {MAX_DEPTH}")
    return node


def too_deep(root: AstNode) -> bool:
    level = [root]
    for _ in range(MAX_DEPTH):
        level = list({id(child): child for node in level for child in children(node)}.values())
        if not level:
            return False
    return True


class _Stop(ApiServerError):
    """Unexpected token; the complaint is already recorded."""


class _Parser:
    def __init__(self, found: list[LexerToken], complaints: list[Complaint]) -> None:
        self.tokens = found
        self.complaints = complaints
        self.position = 0
        self.nesting = 0

    @property
    def token(self) -> LexerToken:
        return self.tokens[self.position]

    def next(self) -> LexerToken:
        token = self.tokens[self.position]
        if token.kind != "eof":
            self.position += 1
        return token

    def accept(self, kind: str) -> LexerToken | None:
        return self.next() if self.token.kind == kind else None

    def complain(self, at: int, text: str) -> None:
        self.complaints.append(Complaint(at, text))

    def stop(self, text: str) -> _Stop:
        self.complain(self.token.at, f"Syntax error: {text}")
        return _Stop()

    def unexpected(self, expected: str, *, skippable: bool) -> _Stop:
        how = "extraneous" if skippable else "mismatched"
        return self.stop(f"{how} input '{self.token.text}' expecting {expected}")

    def following(self) -> str:
        return self.tokens[min(self.position + 1, len(self.tokens) - 1)].kind

    def expect(self, kind: str) -> LexerToken:
        token = self.accept(kind)
        if token is None:
            raise self.stop(f"missing '{kind}' at '{self.token.text}'")
        return token

    def whole(self) -> AstNode:
        node = self.expression()
        if self.token.kind != "eof":
            raise self.unexpected("<EOF>", skippable=self.following() == "eof")
        return node

    def expression(self, start: str = _START) -> AstNode:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.complain(0, f"expression recursion limit exceeded: {MAX_DEPTH}")
            raise _Stop
        if self.token.kind not in _STARTERS:
            raise self.unexpected(start, skippable=self.following() in _STARTERS)
        node = self.disjunction()
        question = self.accept("?")
        if question:
            node = self.conditional(node, question)
        self.nesting -= 1
        return node

    def conditional(self, condition: AstNode, question: LexerToken) -> AstNode:
        self.start_expected()
        chosen = self.disjunction()
        if self.accept(":") is None:
            raise self.unexpected("':'", skippable=False)
        return Call(question.at, "_?_:_", None, (condition, chosen, self.expression()))

    def start_expected(self) -> None:
        if self.token.kind not in _STARTERS:
            raise self.unexpected(_START, skippable=self.following() in _STARTERS)

    def disjunction(self) -> AstNode:
        return self.logical("||", "_||_", self.conjunction)

    def conjunction(self) -> AstNode:
        return self.logical("&&", "_&&_", self.relation)

    def relation(self) -> AstNode:
        return self.binary(1)

    def logical(self, operator: str, name: str, term: TermParser) -> AstNode:
        terms, at = [term()], -1
        while token := self.accept(operator):
            at = token.at if at < 0 else at
            self.start_expected()
            terms.append(term())
        return terms[0] if at < 0 else Call(at, name, None, tuple(terms))

    def binary(self, least: int) -> AstNode:
        left = self.unary()
        while True:
            known = _PRECEDENCE.get(self.token.kind)
            if known is None or known[0] < least:
                return left
            at = self.next().at
            self.start_expected()
            left = Call(at, known[1], None, (left, self.binary(known[0] + 1)))

    def unary(self) -> AstNode:
        token = self.token
        if token.kind not in ("!", "-"):
            return self.member(self.primary())
        if token.kind == "-" and self.following() in ("int", "float"):
            return self.member(self.primary())
        count = 0
        while self.accept(token.kind):
            count += 1
        if self.token.kind not in _STARTERS or (self.token.kind in "!-" and count and self.token.kind != "-"):
            raise self.unexpected(_START, skippable=self.following() in (*_STARTERS, "eof"))
        operand = self.member(self.primary())
        return Call(token.at, f"{token.kind}_", None, (operand,)) if count % 2 else operand

    def member(self, node: AstNode) -> AstNode:
        while True:
            token = self.token
            if token.kind == ".":
                node = self.dotted(node)
            elif token.kind == "[":
                self.next()
                optional = self.accept("?") is not None
                index = self.expression(_START if optional else _START_OR_OPTIONAL)
                self.expect("]")
                node = Call(token.at, "_[?_]" if optional else "_[_]", None, (node, index))
            else:
                return node

    def dotted(self, node: AstNode) -> AstNode:
        dot = self.next()
        optional = self.accept("?") is not None
        name = self.accept("ident") or self.accept("quoted")
        if name is None:
            raise self.stop(f"no viable alternative at input '.{'' if self.token.kind == 'eof' else self.token.text}'")
        if name.kind == "quoted":
            self.complain(name.at, "unsupported syntax: '`'")
            return node
        if not optional and self.token.kind == "(":
            return self.call(name, node)
        return Select(dot.at, node, name.text, optional=optional)

    def call(self, name: LexerToken, target: AstNode | None, prefix: str = "") -> AstNode:
        opening = self.next()
        args = self.arguments()
        if target is None and name.text in RESERVED:
            self.complain(name.at, f"reserved identifier: {name.text}")
        made = Call(opening.at, prefix + name.text, target, args)
        return macros.expand(made, self.complain)

    def arguments(self) -> tuple[AstNode, ...]:
        if self.accept(")"):
            return ()
        args = [self.expression(_START_OR_CLOSE)]
        while self.accept(","):
            args.append(self.expression())
        self.expect(")")
        return tuple(args)

    def primary(self) -> AstNode:
        token = self.next()
        match token.kind:
            case "ident":
                return self.named(token, "")
            case ".":
                name = self.accept("ident")
                if name is None:
                    raise self.stop(f"no viable alternative at input '.{self.token.text}'")
                return self.named(name, ".")
            case "(":
                node = self.expression()
                self.expect(")")
                return node
            case "[":
                return self.list_literal(token)
            case "{":
                return self.map_literal(token)
            case "-":
                if self.token.kind not in ("int", "float"):
                    text = "" if self.token.kind == "eof" else self.token.text
                    raise self.stop(f"no viable alternative at input '-{text}'")
                return self.literal(self.next(), negative=True)
        return self.literal(token, negative=False)

    def named(self, name: LexerToken, prefix: str) -> AstNode:
        if self.token.kind == "(":
            return self.call(name, None, prefix)
        if (brace := self.message_brace()) is not None:
            return self.message(name, prefix, brace)
        if name.text in RESERVED:
            self.complain(name.at, f"reserved identifier: {name.text}")
        return Ident(name.at, prefix + name.text)

    def message_brace(self) -> int | None:
        """Return the position of the { in `a.b.C{`, if names and dots lead to one from here."""
        position = self.position
        while self.tokens[position].kind == "." and self.tokens[position + 1].kind == "ident":
            position += 2
        return position if self.tokens[position].kind == "{" else None

    def message(self, name: LexerToken, prefix: str, brace: int) -> AstNode:
        parts = [token.text for token in self.tokens[self.position : brace]]
        opening = self.tokens[brace]
        self.position = brace + 1
        self.until_close("}", self.message_field)
        return Message(opening.at, prefix + name.text + "".join(parts))

    def message_field(self) -> None:
        self.accept("?")
        if self.accept("ident") is None:
            raise self.unexpected("{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}", skippable=False)
        self.colon()
        self.expression()

    def colon(self) -> None:
        if self.accept(":") is None:
            if self.token.kind in _STARTERS:
                raise self.stop(f"missing ':' at '{self.token.text}'")
            raise self.unexpected("':'", skippable=False)

    def until_close(self, close: str, item: ItemParser) -> None:
        """Parse comma-separated items up to a closing bracket. One trailing comma is valid."""
        if self.token.kind not in (",", close):
            item()
            while self.token.kind == "," and self.following() != close:
                self.next()
                if self.token.kind == ",":
                    raise self.unexpected(f"'{close}'", skippable=False)
                item()
        trailing = self.accept(",") is not None
        if self.accept(close) is None:
            raise self.unexpected(f"'{close}'" if trailing else f"{{'{close}', ','}}", skippable=False)

    def list_literal(self, opening: LexerToken) -> AstNode:
        items: list[AstNode] = []
        optional: set[int] = set()

        def item() -> None:
            if self.accept("?"):
                optional.add(len(items))
            items.append(self.expression())

        self.until_close("]", item)
        return ListOf(opening.at, tuple(items), frozenset(optional))

    def map_literal(self, opening: LexerToken) -> AstNode:
        entries: list[MapEntry] = []

        def item() -> None:
            optional = self.accept("?") is not None
            key = self.expression()
            self.colon()
            entries.append(MapEntry(key, self.expression(), optional))

        self.until_close("}", item)
        return MapOf(opening.at, tuple(entries))

    def literal(self, token: LexerToken, *, negative: bool) -> AstNode:
        at = self.tokens[self.position - 2].at if negative else token.at
        try:
            return Constant(at, _value(token, negative))
        except LiteralError as wrong:
            self.complain(at, str(wrong))
            return Constant(at, None)


def _value(token: LexerToken, negative: bool) -> object:
    match token.kind:
        case "string":
            return lexer.string(token.text)
        case "bytes":
            return lexer.byte_string(token.text)
        case "true" | "false":
            return token.kind == "true"
        case "null":
            return None
    return lexer.number(token, negative)
