"""The lists of pages in docs/, made from the code they speak of: python -m tests.lab.pages

Each stands between `<!-- name -->` and `<!-- end -->`. What is around them is written by hand and left alone. The
templates in examples/clusterctl are made whole.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec

import remuda
from remuda.capi.machine.deletion import MEANING
from remuda.clusterctl import repository
from remuda.providers.controlplane.rules.versions import KNOWN_MINORS
from remuda.providers.machine import options
from remuda.providers.shared import drivers as machine_drivers
from remuda.providers.shared.drivers import known_drivers
from remuda.provisioning import fields as cluster_fields
from remuda.runtime.metrics import Metrics
from remuda.runtime.steps import Step
from tests.interop.system_agent.differences import DIFFERENCES
from tests.lab import reference

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


def drivers() -> str:
    rows = [
        f"| {_linked(name)} | {options.of_driver(machine_drivers.find(name)).doc} |" for name in machine_drivers.names()
    ]
    return "\n".join(["| driver | what it makes |", "|---|---|", *rows])


def _linked(name: str) -> str:
    return f"[`{name}`](drivers/{name}.md)" if (DOCS / "drivers" / f"{name}.md").exists() else f"`{name}`"


def driver_options(name: str) -> str:
    model = options.of_driver(machine_drivers.find(name))
    rows = []
    for option in model.options:
        notes = ["**required**"] if option.name in model.required else []
        notes += ["secret"] if option.secret else []
        notes += ["a credential may bring it"] if option.name in model.credentials else []
        default = "" if option.default is None else f"`{_shown(option.default)}`"
        said = " ".join([option.doc, f"({', '.join(notes)})"] if notes else [option.doc])
        rows.append(f"| `{option.name}` | {option.type} | {default} | {_cell(said)} |")
    return "\n".join(["| option | type | default | what it is |", "|---|---|---|---|", *rows])


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def known_credentials() -> str:
    rows = []
    for driver in known_drivers.drivers():
        facts = known_drivers.facts(driver, {})
        hidden = ", ".join(f"`{name}`" for name in facts.private)
        others = ", ".join(f"`{name}`" for name in facts.public)
        rows.append(f"| `{driver}` | {hidden} | {others} |")
    return "\n".join(["| driver | secret | beside it |", "|---|---|---|", *rows])


def ignored_annotations() -> str:
    rows = [f"| `{name}` | {why} |" for name, why in cluster_fields.IGNORED_ANNOTATIONS.items()]
    return "\n".join(["| annotation | why it does nothing |", "|---|---|", *rows])


def known_minors() -> str:
    rows = [f"| {distro} | v1.{first} to v1.{last} |" for distro, (first, last) in KNOWN_MINORS.items()]
    return "\n".join(["| distribution | known releases |", "|---|---|", *rows])


def differences() -> str:
    rows = [
        f"| {what} | {_cell_value(each.theirs)} | {_cell_value(each.ours)} | {each.why} |"
        for what, each in DIFFERENCES.items()
    ]
    return "\n".join(["| what | system-agent | ours | why |", "|---|---|---|---|", *rows])


def _cell_value(value: object) -> str:
    if isinstance(value, bytes):
        return f"`{msgspec.json.encode(value.decode()).decode()}`"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _name(name: str, type: str) -> str:
    return f"{name}_total" if type == "counter" else name


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "cluster-api.md": {"steps": steps, "deletion": deletion},
    "running.md": {"metrics": metrics},
    "drivers.md": {"drivers": drivers},
    "system-agent.md": {"differences": differences},
    "drivers/rancher-machine.md": {"credentials": known_credentials},
    "reference/README.md": {"kinds": reference.index},
    **{f"reference/{group}.md": {"kinds": partial(reference.kinds, group)} for group in reference.GROUPS},
    "reference/provisioning.cattle.io.md": {
        "kinds": partial(reference.kinds, "provisioning.cattle.io"),
        "annotations": ignored_annotations,
        "versions": known_minors,
    },
    **{
        f"drivers/{name}.md": {"options": partial(driver_options, name)}
        for name in machine_drivers.names()
        if (DOCS / "drivers" / f"{name}.md").exists()
    },
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
    for name, text in repository.cluster_templates(repository.flavours()).items():
        (DOCS.parent / "examples" / "clusterctl" / name).write_text(text)
