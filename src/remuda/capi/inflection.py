"""The plural of a kind, as Go's tools make it: the name of a provider's CRD is guessed from the kind it holds.

Cluster API asks providers to name CRDs as the flect library would, so its rules are followed where English kinds can
meet them: the endings, the words that do not follow them, and the words that have no plural. Of a CamelCase kind
only its last word is inflected, and it keeps its case.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SAME = frozenset(
    {"aircraft", "bison", "chassis", "data", "deer", "equipment", "fish", "information", "metadata", "money", "moose"}
    | {"news", "police", "rice", "salmon", "series", "sheep", "shrimp", "species", "swine", "trout"}
)

_IRREGULAR = {
    "alias": "aliases",
    "axis": "axes",
    "analysis": "analyses",
    "basis": "bases",
    "bonus": "bonuses",
    "bus": "buses",
    "campus": "campuses",
    "child": "children",
    "criterion": "criteria",
    "crisis": "crises",
    "datum": "data",
    "diagnosis": "diagnoses",
    "echo": "echoes",
    "foot": "feet",
    "goose": "geese",
    "half": "halves",
    "hero": "heroes",
    "hypothesis": "hypotheses",
    "index": "indices",
    "knife": "knives",
    "leaf": "leaves",
    "life": "lives",
    "loaf": "loaves",
    "man": "men",
    "matrix": "matrices",
    "medium": "media",
    "mouse": "mice",
    "ox": "oxen",
    "person": "people",
    "phenomenon": "phenomena",
    "potato": "potatoes",
    "quiz": "quizzes",
    "self": "selves",
    "shelf": "shelves",
    "status": "statuses",
    "thesis": "theses",
    "thief": "thieves",
    "tomato": "tomatoes",
    "tooth": "teeth",
    "vertex": "vertices",
    "virus": "viruses",
    "wife": "wives",
    "wolf": "wolves",
    "woman": "women",
}

_LAST_WORD = re.compile(r"(?:[A-Z]+|[A-Z]?[a-z]+)[0-9]*$")
_HISSING = ("s", "x", "z", "ch", "sh")


@lru_cache(maxsize=1024)
def plural(kind: str) -> str:
    """`DevMachine` → `DevMachines`, `GCPIdentity` → `GCPIdentities`."""
    match = _LAST_WORD.search(kind)
    word = match.group() if match else kind
    stem = kind[: len(kind) - len(word)]
    return stem + _like(word, _plural(word.lower()))


def _plural(word: str) -> str:
    if word in _SAME or not word:
        return word
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("y") and len(word) > 1 and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    if word.endswith("sis"):
        return word[:-3] + "ses"
    return word + ("es" if word.endswith(_HISSING) else "s")


def _like(word: str, plural_word: str) -> str:
    """In the case of the singular: as much of it as both share, then small letters."""
    shared = next((i for i, (a, b) in enumerate(zip(word.lower(), plural_word, strict=False)) if a != b), len(word))
    return word[:shared] + plural_word[shared:]
