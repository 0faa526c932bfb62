"""A node cannot promote itself: of its plan Secret it may write the results of plans, and nothing else. Pure."""

from __future__ import annotations

from remuda.kube.admission import ALLOWED, Registration, Review, Verdict
from remuda.kube.core import SECRET


def admit(review: Review) -> Verdict:
    return ALLOWED


FUNCTIONS: list[Registration] = [Registration("", SECRET.plural, admit, ("UPDATE",))]
