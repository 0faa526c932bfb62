"""The chain from a cluster down to what holds it up, as text: what `why` prints, and what a wait in vain ends with.
Pure.

The last link tells its whole message and, on a line of its own, what comes next: what happens by itself, or what
somebody has to do, in the object's own words where it has said so.
"""

from __future__ import annotations

from remuda.cli import tree_text
from remuda.cli.text_wrap import wrapped
from remuda.kube import clock
from remuda.provisioning import blocker
from remuda.provisioning.tree import Branch


def chain_lines(root: Branch, *, width: int | None = None, now: float | None = None) -> list[str]:
    """Empty when all is well."""
    moment = clock.time() if now is None else now
    chain = blocker.blocking(root)
    found: list[str] = []
    for depth, one in enumerate(chain):
        last = one is chain[-1]
        found.append(_link(one, depth, moment, width, last=last))
        if last:
            found += wrapped(one.judgement.message, width, "   " * depth + "  ")
    if chain:
        found += wrapped(f"next: {blocker.then(chain)}", width, "")
    return found


def _link(one: Branch, depth: int, now: float, width: int | None, *, last: bool) -> str:
    said = one.judgement
    trunk = "" if depth == 0 else "   " * (depth - 1) + "└─ "
    since = f" for {tree_text.age(said.since, now)}" if said.since else ""
    reason = f"  {said.reason}" if said.reason else ""
    told = f"{tree_text.state(said)}{since}"
    head = f"{trunk}{one}"
    if width is not None:
        reason = tree_text.cut(reason, max(width - len(head) - 2 - len(told), 0))
    return f"{head}  {tree_text.styled(told, said)}{reason}".rstrip()
