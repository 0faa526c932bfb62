"""Order among versions: of Kubernetes itself (semantic versions) and of APIs (v1 above v1beta2 above v1alpha1)."""

from __future__ import annotations

import re

_SEMANTIC = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?")
_API = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}

Identifiers = tuple[tuple[int, int, str], ...]
SemanticOrder = tuple[int, int, int, bool, Identifiers, Identifiers]


def semantic(version: str) -> SemanticOrder:
    """Return a sort key for versions of Kubernetes. Build tags count too: distributions release by them (`+k3s2`).

    Raises ValueError if it is not a semantic version.
    """
    match = _SEMANTIC.fullmatch(version)
    if match is None:
        raise ValueError(f"{version!r} is not a semantic version")
    major, minor, patch, before, build = match.groups()
    return int(major), int(minor), int(patch), before is None, _identifiers(before), _identifiers(build)


def _identifiers(text: str | None) -> Identifiers:
    """Numbers below words, numbers by value, words by letters."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in (text or "").split(".") if part)


def api(version: str) -> tuple[bool, int, int, int, tuple[int, ...]]:
    """Return a sort key for API versions, ordered as in Kubernetes: stable above beta above alpha, then by number.

    Any other text sorts below all API versions, in reverse alphabetical order.
    """
    match = _API.fullmatch(version)
    if match is None:
        return False, 0, 0, 0, (*(-ord(letter) for letter in version), 0)
    major, stage, minor = match.groups()
    return True, _STAGES[stage], int(major), int(minor or 0), ()
