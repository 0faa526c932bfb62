"""Where our agent differs from upstream's on purpose: the whole list. Each test that meets one of these says so by its
name; everything else in this suite is expected of both alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Difference(NamedTuple):
    theirs: Any
    ours: Any
    why: str


DIFFERENCES = {
    "runs after a restart, without plan-state": Difference(
        2, 1, "what has finished is never run again because the agent has started anew: it is in the journal"
    ),
    "failure-count after a failure, by plan-state": Difference(
        b"0", b"1", "upstream's next pass takes the failure for a success and clears its keys; ours keeps them"
    ),
    "a failed plan as applied-checksum, by plan-state": Difference(
        True, False, "as above: a plan that failed is not the applied one"
    ),
    "output of a failed instruction": Difference(
        b"out\n",
        b"out\nerr\n",
        "upstream drops what goes to standard error; ours keeps it after a failure, behind the rest",
    ),
    "output without a final line break": Difference(
        b"a\nb\n", b"a\r\nb", "upstream splits output into lines and joins them; ours keeps the bytes"
    ),
    "a line of 200,000 bytes": Difference(
        "stuck",
        "succeeded",
        "upstream stops reading a line longer than 64 KiB, and the command waits for ever to write",
    ),
    "an image by digest from a local archive": Difference(
        "failed", "succeeded", "upstream looks for tags only, and takes a digest for an error"
    ),
    "a periodic instruction that comes to the same, told of": Difference(
        True, False, "ours writes what it came to when that changes, and once an hour: an idle host writes nothing"
    ),
    "a plan that is no JSON": Difference(
        "not reported", "failed", "upstream only logs it; ours reports the failure in the Secret"
    ),
    "a file that cannot be written": Difference(
        "not reported", "failed", "upstream only logs it, and tries again after a minute; ours reports the failure"
    ),
    "a path with ..": Difference("written", "failed", "ours refuses paths that do not say where they lead"),
}
