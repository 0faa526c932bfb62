"""Text of the chain from a cluster down to the object that blocks it, for `why` and for waits that time out. Pure.

The last link shows its whole message. A line of its own says what happens next, or what the user has to do.
"""

from __future__ import annotations

from remuda.cli import tree_text
from remuda.cli.text_wrap import wrapped
from remuda.kube import clock
from remuda.provisioning import blocker
from remuda.provisioning.tree import Branch


def chain_lines(root: Branch, *, width: int | None = None, now: float | None = None) -> list[str]:
    """Return the lines of the chain; none if the cluster is ready."""
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
    judgement = one.judgement
    trunk = "" if depth == 0 else "   " * (depth - 1) + "└─ "
    since = f" for {tree_text.age(judgement.since, now)}" if judgement.since else ""
    reason = f"  {judgement.reason}" if judgement.reason else ""
    state = f"{tree_text.state(judgement)}{since}"
    head = f"{trunk}{one}"
    if width is not None:
        reason = tree_text.cut(reason, max(width - len(head) - 2 - len(state), 0))
    return f"{head}  {tree_text.styled(state, judgement)}{reason}".rstrip()
