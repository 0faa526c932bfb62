"""Text of a cluster's tree, and of the chain from the cluster down to the object that blocks it. Pure.

The tree is aligned to a width and folded to a height. No line is cut: a state that does not fit beside a long name is
on the next line, and a reason that does not fit is left out. The object that blocks the cluster is marked with » and
shows its message, wrapped beneath it. If there are too many lines, ready objects are folded first, then long messages,
and the chain to the blocking object never is.

The chain is for `why` and for waits that time out. Its last link shows its whole message. A line of its own says what
happens next, or what the user has to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import msgspec

from remuda.cli.text_wrap import wrapped
from remuda.kube import clock
from remuda.provisioning import blocker
from remuda.provisioning.tree import Branch, Judgement

MARK = "»"
_COLOURS = {
    "well": "green",
    "waiting": "yellow",
    "unknown": "yellow",
    "held": "red",
    "stalled": "red",
    "deleting": "magenta",
}
_WORDS = {"well": "ready"}
_GAP = "  "
_BENEATH = 5  # lines of a message if there is no room for all of it
_LEAST = 24  # width of the first column, however narrow the terminal


@dataclass(frozen=True)
class _Row:
    branch: Branch
    trunk: str  # the branch lines before its name
    beneath: str  # the same for the lines beneath it
    leaf: bool

    @property
    def head(self) -> str:
        return f"{MARK if self.leaf else ' '} {self.trunk}{self.branch if self.branch.kind else self.branch.name}"


def lines(root: Branch, *, width: int | None = None, height: int | None = None, now: float | None = None) -> list[str]:
    """Return the lines of a tree. `width` and `height`: None in a pipe, where nothing is cut or folded."""
    moment = clock.time() if now is None else now
    if height is None:
        return _drawn(root, width, moment, None)
    for fold in range(len(_FOLDS) + 1):
        folded = _folded(root, fold)
        for most in (None, _BENEATH):
            made = _drawn(folded, width, moment, most)
            if len(made) <= height:
                return made
    # A very low terminal: the objects between the cluster and the one that blocks it give way.
    leaf = next((at for at, line in enumerate(made) if click.unstyle(line).startswith(MARK)), 0)
    return [*made[: min(leaf, 1)], *made[leaf:]][:height]


def age(since: str, now: float) -> str:
    """Format the age of an RFC 3339 time: `42s`, `3m10s`, `2h5m`, `3d4h`."""
    try:
        return span(now - clock.parse(since))
    except ValueError:
        return ""


def span(seconds: float) -> str:
    whole = max(int(seconds), 0)
    for size, unit, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{whole}s"


def state(judgement: Judgement) -> str:
    return _WORDS.get(judgement.state, judgement.state)


def styled(text: str, judgement: Judgement) -> str:
    return click.style(text, fg=_COLOURS.get(judgement.state))


def _drawn(root: Branch, width: int | None, now: float, most: int | None) -> list[str]:
    """Return the lines of a tree. `most`: lines of a message; the rest is left to `remuda why`."""
    rows = list(_rows(root))
    notes = max(len(row.branch.note) for row in rows)
    states = max(len(_state_text(row.branch, now)) for row in rows)
    heads = max(len(row.head) for row in rows)
    if width is not None:
        heads = min(heads, max(width - notes - states - 2 * len(_GAP), _LEAST))
    found: list[str] = []
    for row in rows:
        found += _lines(row, heads, notes, states, width, now)
        if row.leaf and not row.branch.judgement.well:
            message = wrapped(row.branch.judgement.message, width, row.beneath + "   ", whole_words=False)
            is_whole = most is None or len(message) <= most
            found += message if is_whole else [*message[: (most or 1) - 1], f"{row.beneath}   (more: remuda why)"]
    return found


def _lines(row: _Row, heads: int, notes: int, states: int, width: int | None, now: float) -> list[str]:
    """Return the line of a row; two or more if its name leaves no room for the state."""
    one = row.branch
    text = _state_text(one, now)
    facts = (_GAP + one.note.ljust(notes) if notes else "") + _GAP
    after = styled(text, one.judgement) if text else ""
    if not one.judgement.well and one.judgement.reason:
        taken = heads + len(facts) + states + len(_GAP)
        if width is None or taken + len(one.judgement.reason) <= width:
            after += " " * (states - len(text)) + _GAP + one.judgement.reason

    def shown(head: str) -> str:
        return click.style(head, bold=row.leaf or None, dim=not one.kind or None)

    if len(row.head) <= heads:
        return [f"{shown(row.head)}{' ' * (heads - len(row.head))}{facts}{after}".rstrip()]
    assert width is not None, "without a width, all heads have room"
    close = _GAP.join([row.head, *([one.note] if one.note else []), text]).rstrip()
    if len(close) <= width:
        return [
            close.replace(row.head, shown(row.head), 1).removesuffix(text) + styled(text, one.judgement) * bool(text)
        ]
    names = _pieces(row.head, width, row.beneath + "   ")
    return [*(shown(name) for name in names), f"{row.beneath.ljust(heads)}{facts}{after}".rstrip()]


def _pieces(text: str, width: int, indent: str) -> list[str]:
    """Return a name that is longer than the terminal is wide, in pieces."""
    found = [text[:width]]
    room = max(width - len(indent), 1)
    rest = text[width:]
    return found + [indent + rest[at : at + room] for at in range(0, len(rest), room)]


def _state_text(one: Branch, now: float) -> str:
    if not one.kind:
        return ""
    judgement = one.judgement
    old = "" if judgement.well or not judgement.since else age(judgement.since, now)
    return f"{state(judgement)} {old}".strip()


def _rows(root: Branch) -> Iterator[_Row]:
    leaf = next(reversed(blocker.blocking(root)), None)

    def below(one: Branch, trunk: str, rest: str) -> Iterator[_Row]:
        has = bool(one.branches)
        yield _Row(one, trunk, f"  {rest}{'│' if has else ' '}", one is leaf)
        for branch in one.branches:
            last = branch is one.branches[-1]
            yield from below(branch, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    return below(root, "", "")


# ---- folding ---------------------------------------------------------------------------------------------------------


def _folded(root: Branch, much: int) -> Branch:
    chain = {id(one) for one in blocker.blocking(root)}
    for fold in _FOLDS[:much]:
        root = fold(root, chain)
        chain = {id(one) for one in blocker.blocking(root)}
    return root


def _without_objects_below_ready_machines(root: Branch, chain: set[int]) -> Branch:
    """Fold the servers and hosts of machines that are ready."""
    return _with(
        root, [_bare(one) if _is_machine(one) and one.well else _again(one, chain, 0) for one in root.branches]
    )


def _without_ready_objects(root: Branch, chain: set[int]) -> Branch:
    ready = [one for one in root.branches if one.well]
    kept = [_again(one, chain, 1) for one in root.branches if not one.well]
    return _with(root, kept + _more(ready, "ready"))


def _only_the_chain(root: Branch, chain: set[int]) -> Branch:
    kept = [_again(one, chain, 2) for one in root.branches if id(one) in chain]
    others = [one for one in root.branches if id(one) not in chain and one.kind]
    folded = [one for one in root.branches if not one.kind]
    return _with(root, kept + _more(others, "not ready") + folded)


_FOLDS = (_without_objects_below_ready_machines, _without_ready_objects, _only_the_chain)


def _again(one: Branch, chain: set[int], fold: int) -> Branch:
    return _FOLDS[fold](one, chain) if one.branches else one


def _with(root: Branch, branches: Sequence[Branch]) -> Branch:
    return msgspec.structs.replace(root, branches=tuple(branches))


def _bare(one: Branch) -> Branch:
    return _with(one, ())


def _is_machine(one: Branch) -> bool:
    return one.kind == "Machine"


def _more(ones: Sequence[Branch], word: str) -> list[Branch]:
    if not ones:
        return []
    return [Branch(kind="", name=f"… {len(ones)} more, {word}", judgement=Judgement(state="well"))]


def chain_lines(root: Branch, *, width: int | None = None, now: float | None = None) -> list[str]:
    """Return the lines of the chain; none if the cluster is ready."""
    moment = clock.time() if now is None else now
    chain = blocker.blocking(root)
    found: list[str] = []
    for depth, one in enumerate(chain):
        last = one is chain[-1]
        found.append(_link(one, depth, moment, width))
        if last:
            found += wrapped(one.judgement.message, width, "   " * depth + "  ")
    if chain:
        found += wrapped(blocker.next_line(chain), width, "")
    return found


def _link(one: Branch, depth: int, now: float, width: int | None) -> str:
    judgement = one.judgement
    trunk = "" if depth == 0 else "   " * (depth - 1) + "└─ "
    since = f" for {age(judgement.since, now)}" if judgement.since else ""
    reason = f"  {judgement.reason}" if judgement.reason else ""
    shown = f"{state(judgement)}{since}"
    head = f"{trunk}{one}"
    if width is not None and len(head) + 2 + len(shown) + len(reason) > width:
        reason = ""
    return f"{head}  {styled(shown, judgement)}{reason}".rstrip()
