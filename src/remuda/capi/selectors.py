"""Selectors, compiled once however often they are asked for: every reconcile of a set asks several times."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from remuda.capi.types import Selector
from remuda.kube.requirements import SelectorError
from remuda.kube.selectors import LabelSelector


def compiled(selector: Selector) -> LabelSelector | None:
    """None where it makes no sense."""
    return _compiled(msgspec.json.encode(selector))


def selective(selector: Selector) -> LabelSelector | None:
    """None also where it cannot tell some objects from all others."""
    found = compiled(selector)
    return None if found is None or found.empty or found.nothing else found


@lru_cache(maxsize=4096)
def _compiled(encoded: bytes) -> LabelSelector | None:
    try:
        return msgspec.json.decode(encoded, type=Selector).compile()
    except SelectorError:
        return None
