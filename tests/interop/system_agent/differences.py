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
        2, 1, "a restarted agent finds the finished run in its journal and does not repeat it"
    ),
    "failure-count after a failure, by plan-state": Difference(
        b"0", b"1", "upstream's next pass treats the failure as a success and clears its keys; ours keeps them"
    ),
    "a failed plan as applied-checksum, by plan-state": Difference(
        True, False, "as above: a plan that failed is not the applied one"
    ),
    "output of a failed instruction": Difference(
        b"out\n",
        b"out\nerr\n",
        "upstream drops standard error; ours appends it after a failure",
    ),
    "output without a final line break": Difference(
        b"a\nb\n", b"a\r\nb", "upstream splits output into lines and joins them; ours keeps the bytes"
    ),
    "a line of 200,000 bytes": Difference(
        "stuck",
        "succeeded",
        "upstream stops reading a line longer than 64 KiB, and the command blocks forever",
    ),
    "an image by digest from a local archive": Difference(
        "failed", "succeeded", "upstream supports only tags, and rejects a digest"
    ),
    "an unchanged result of a periodic instruction is reported": Difference(
        True, False, "ours writes a result when it changes, and once an hour: an idle host writes nothing"
    ),
    "a plan that is no JSON": Difference(
        "not reported", "failed", "upstream only logs it; ours reports the failure in the Secret"
    ),
    "a file that cannot be written": Difference(
        "not reported", "failed", "upstream only logs it, and tries again after a minute; ours reports the failure"
    ),
    "a path with ..": Difference("written", "failed", "ours refuses paths with `..`"),
}
