"""The lists of docs/cluster-api.md and docs/running.md, made from the code they speak of: python -m tests.lab.pages

Each stands between `<!-- name -->` and `<!-- end -->`. What is around them is written by hand and left alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path

import remuda
from remuda.capi.machine.deletion import MEANING
from remuda.runtime.metrics import Metrics
from remuda.runtime.steps import Step

DOCS = Path(__file__).parents[2] / "docs"


def declared_steps() -> dict[str, Step]:
    """Every step any module of ours declares, by name: not those that tests make up."""
    found: dict[str, Step] = {}
    for module in pkgutil.walk_packages(remuda.__path__, "remuda."):
        if not module.name.endswith("__main__"):
            values = vars(importlib.import_module(module.name)).values()
            found |= {value.name: value for value in values if isinstance(value, Step)}
    return dict(sorted(found.items()))


def steps() -> str:
    rows = [f"| `{step.name}` | {step.doc} |" for step in declared_steps().values()]
    return "\n".join(["| step | what it does |", "|---|---|", *rows])


def deletion() -> str:
    rows = [f"| {number} | `{stage.value}` | {meaning} |" for number, (stage, meaning) in enumerate(MEANING.items(), 1)]
    return "\n".join(["| | stage, the reason of Deleting | what happens |", "|---|---|---|", *rows])


def metrics() -> str:
    families = sorted(Metrics().registry.collect(), key=lambda family: family.name)
    rows = [f"| `{_name(family.name, family.type)}` | {family.documentation} |" for family in families]
    return "\n".join(["| metric | what it counts |", "|---|---|", *rows])


def _name(name: str, type: str) -> str:
    return f"{name}_total" if type == "counter" else name


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "cluster-api.md": {"steps": steps, "deletion": deletion},
    "running.md": {"metrics": metrics},
}


def rewritten(name: str, page: str) -> str:
    for title, make in PAGES[name].items():
        before, start, rest = page.partition(f"<!-- {title} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        if not start or not end:
            raise ValueError(f"{name} has no list of {title}")
        page = f"{before}{start}{make()}\n{end}{after}"
    return page


if __name__ == "__main__":
    for name in PAGES:
        path = DOCS / name
        path.write_text(rewritten(name, path.read_text()))
