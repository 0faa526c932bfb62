"""Plural of a kind, as Go's tools form it: the name of a provider's CRD is derived from its kind.

Cluster API asks providers to name CRDs as the flect library would, so this module follows its plurals, including the
odd ones (`Safe` → `Saves`). Only the last word of a CamelCase kind is inflected.
"""

from __future__ import annotations

import re
from functools import lru_cache

_SAME = frozenset(
    {"aircraft", "bison", "chassis", "data", "deer", "equipment", "fish", "information", "media", "metadata", "money"}
    | {"moose", "news", "police", "rice", "salmon", "series", "sheep", "shrimp", "species", "swine", "trout", "tuna"}
)

_IRREGULAR = {
    "alias": "aliases",
    "apex": "apices",
    "appendix": "appendices",
    "axis": "axes",
    "basis": "bases",
    "cactus": "cacti",
    "child": "children",
    "codex": "codices",
    "corpus": "corpora",
    "crisis": "crises",
    "criterion": "criteria",
    "dwarf": "dwarfs",
    "focus": "foci",
    "foot": "feet",
    "forum": "forums",
    "genus": "genera",
    "goose": "geese",
    "helix": "helices",
    "human": "humans",
    "index": "indices",
    "lexicon": "lexica",
    "locus": "loci",
    "man": "men",
    "medium": "media",
    "mouse": "mice",
    "nucleus": "nuclei",
    "oasis": "oases",
    "ox": "oxen",
    "person": "people",
    "phenomenon": "phenomena",
    "potato": "potatoes",
    "radius": "radii",
    "radix": "radices",
    "taxon": "taxa",
    "thesis": "theses",
    "hypothesis": "hypotheses",
    "thief": "thieves",
    "tomato": "tomatoes",
    "tooth": "teeth",
    "vertex": "vertices",
    "vortex": "vortices",
    "woman": "women",
}

# The first match decides: (ending of the singular, its replacement).
_ENDINGS = (
    *((ending, ending[:-1] + "ves") for ending in ("eaf", "oaf", "rf", "lf")),
    ("fe", "ves"),
    *((ending, ending + "s") for ending in ("ay", "ey", "oy", "uy")),
    ("y", "ies"),
    *((ending, ending[:-2] + "a") for ending in ("dum", "imum", "trum", "atum", "entum")),
    ("ium", "ia"),
    ("trix", "trices"),
    *((ending, ending[:-2] + "es") for ending in ("mesis", "resis", "gnosis", "opsis", "ysis")),
    ("us", "uses"),
    *((ending, ending + "es") for ending in ("ch", "sh", "ss", "x", "tz", "zz")),
    ("iz", "izzes"),
    ("ez", "ezzes"),
    *((ending, ending + "s") for ending in ("io", "ano", "lo", "to", "oo")),
    ("o", "oes"),
    ("S", "Ses"),
    ("s", "s"),
)

_LAST_WORD = re.compile(r"(?:[A-Z]+|[A-Z]?[a-z]+)$")


@lru_cache(maxsize=1024)
def plural(kind: str) -> str:
    """Return the plural: `DevMachine` → `DevMachines`, `GCPIdentity` → `GCPIdentities`."""
    match = _LAST_WORD.search(kind)
    if match is None:
        return f"{kind}s"
    word = match.group()
    return kind[: match.start()] + _plural(word)


def _plural(word: str) -> str:
    lower = word.lower()
    if lower in _SAME:
        return word
    if lower in _IRREGULAR:
        irregular = _IRREGULAR[lower]
        return irregular.capitalize() if word[0].isupper() else irregular
    for ending, becomes in _ENDINGS:
        if word.endswith(ending):
            return word[: -len(ending)] + becomes
    return f"{word}s"
