"""The lists of docs/compatibility.md, made from the code they speak of: python -m tests.interop.semantics.page

Each stands between `<!-- name -->` and `<!-- end -->`. What is around them is written by hand and left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from remuda.apiserver.kinds import builtin_resources
from tests.interop.semantics.known_wording import KNOWN_WORDING
from tests.lab.upstream import DISABLED_PLUGINS

PAGE = Path(__file__).parents[3] / "docs" / "compatibility.md"


def kinds() -> str:
    served: dict[str, list[str]] = {}
    for resource in builtin_resources():
        served.setdefault(resource.api_version, []).append(resource.plural)
    rows = [f"| `{group}` | {', '.join(sorted(plurals))} |" for group, plurals in sorted(served.items())]
    return "\n".join(["| group and version | resources |", "|---|---|", *rows])


def plugins() -> str:
    return "\n".join(f"- {name}" for name in sorted(DISABLED_PLUGINS))


def wording() -> str:
    cases: dict[str, list[str]] = {}
    for case, sentences in KNOWN_WORDING.items():
        for why in dict.fromkeys(sentences.values()):
            cases.setdefault(why, []).append(f"`{case}`")
    rows = [f"| {why} | {', '.join(sorted(found))} |" for why, found in sorted(cases.items())]
    return "\n".join(["| upstream's sentence | where |", "|---|---|", *rows])


LISTS: dict[str, Callable[[], str]] = {"kinds": kinds, "plugins": plugins, "wording": wording}


def rewritten(page: str) -> str:
    for name, make in LISTS.items():
        before, start, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not start or not end:
            raise ValueError(f"the page has no list of {name}")
        page = f"{before}{start}{make()}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
