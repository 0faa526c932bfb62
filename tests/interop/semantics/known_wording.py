"""Differences in sentences only, each with the reason why it stays. Codes, reasons, order and bytes never differ.

Per case: how upstream's sentence begins, and why ours is another. Any other sentence must be the same, and an entry
that is no longer needed fails its test, so this list only says what is true.
"""

from __future__ import annotations

_YAML = "the text of a YAML parser's complaint; ours is another parser and says the same of the same place"

KNOWN_WORDING: dict[str, dict[str, str]] = {
    "apply/takes_yaml": {"error decoding YAML: error converting YAML to JSON: yaml:": _YAML},
    "errors/bodies_in_yaml": {"the object provided is unrecognized (must be of type ConfigMap): yaml:": _YAML},
}


def unexplained(case_id: str, theirs: list[str], ours: list[str]) -> list[tuple[str, str]]:
    """The sentences that differ without an entry here."""
    known = KNOWN_WORDING.get(case_id, {})
    pairs = zip(theirs, ours, strict=True)
    return [(left, right) for left, right in pairs if left != right and not left.startswith(tuple(known))]


def unneeded(case_id: str, theirs: list[str], ours: list[str]) -> list[str]:
    """Entries that explain nothing any more."""
    different = [left for left, right in zip(theirs, ours, strict=True) if left != right]
    known = KNOWN_WORDING.get(case_id, {})
    return [start for start in known if not any(sentence.startswith(start) for sentence in different)]
