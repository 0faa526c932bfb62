"""Our definitions of the kinds of Cluster API, against upstream's own: every field of every kind, and no difference but
the intended ones, each of which must really be there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.capi import names
from remuda.capi.definitions import definitions
from remuda.kube import kubeconfig
from remuda.kube.definitions import DEFINITION, OWNER, OWNERSHIP_LABEL
from remuda.kube.http import HttpClient
from remuda.runtime.definitions import INSTALL, ForeignDefinitions, install
from tests.lab import Upstream
from tests.lab.peers import require_source

Json = dict[str, Any]

KINDS = ["Cluster", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck", "MachineDrainRule"]

# Fields upstream has and we refuse to take.
NOT_SUPPORTED = {"Cluster": (".spec.topology",)}

# Fields that came with later releases than the pinned one. Whoever wrote them there must find them here.
NEWER = {
    "Cluster": (".status.controlPlane.versions", ".status.workers.versions"),
    "Machine": (".status.deletion.waitForPreDrainHookStartTime", ".status.deletion.waitForPreTerminateHookStartTime"),
    "MachineSet": (".status.versions",),
    "MachineDeployment": (".status.versions",),
}

# Where our schema also says, in CEL, what upstream says only in its webhooks: a server without ours refuses it too.
STRICTER = {
    "Cluster": (".spec",),
    "Machine": (".spec.clusterName",),
    "MachineSet": (".spec", ".spec.clusterName", ".spec.template.spec.clusterName"),
    "MachineDeployment": (".spec", ".spec.clusterName", ".spec.template.spec.clusterName"),
    "MachineHealthCheck": (".spec.clusterName",),
    "MachineDrainRule": (".spec.drain",),
}

_RULES = "x-kubernetes-validations"
_WORDS = ("description", "title")
_SHAPES = ("properties", "items", "additionalProperties")


def paths(schema: Json, at: str = "", required: bool = False) -> Iterator[tuple[str, Json]]:
    """Every node of a schema with all that is said of it, apart from words and what goes without saying: strings have
    no negative length, and no object is without metadata."""
    facts = {key: value for key, value in schema.items() if key not in (*_WORDS, *_SHAPES, "required")}
    if facts.get("minLength") == 0:
        del facts["minLength"]
    yield at, {**facts, "demanded": required and at != ".metadata"}
    for name, inner in schema.get("properties", {}).items():
        yield from paths(inner, f"{at}.{name}", name in schema.get("required", ()))
    for keyword, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(keyword), dict):
            yield from paths(schema[keyword], at + mark)


def served(definition: Json) -> Json:
    (found,) = [version for version in definition["spec"]["versions"] if version["name"] == names.VERSION]
    return dict(found)


def fields(definition: Json) -> dict[str, Json]:
    return dict(paths(served(definition)["schema"]["openAPIV3Schema"]))


def within(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith((f"{root}.", f"{root}[]")) for root in roots)


@pytest.fixture(scope="module")
def bases() -> Path:
    return require_source("clusterctl") / "config" / "crd" / "bases"


@pytest.fixture(params=KINDS)
def pair(request: pytest.FixtureRequest, bases: Path) -> tuple[str, Json, Json]:
    (ours,) = [found for found in definitions() if found["spec"]["names"]["kind"] == request.param]
    theirs = yaml.safe_load((bases / f"{names.GROUP}_{ours['spec']['names']['plural']}.yaml").read_text())
    return request.param, ours, theirs


def test_crd_fields_match_upstream(pair: tuple[str, Json, Json]) -> None:
    kind, ours, theirs = pair
    skipped = NOT_SUPPORTED.get(kind, ())
    expected = {path: facts for path, facts in fields(theirs).items() if not within(path, skipped)}
    found = {path: facts for path, facts in fields(ours).items() if not within(path, NEWER.get(kind, ()) + skipped)}
    for path in STRICTER[kind]:
        del found[path][_RULES]
    assert len(expected) > 20
    assert found == expected


def test_listed_crd_differences_exist(pair: tuple[str, Json, Json]) -> None:
    kind, ours, theirs = pair
    here, there = fields(ours), fields(theirs)
    assert [path for path in NEWER.get(kind, ()) if path not in here or path in there] == []
    assert [path for path in NOT_SUPPORTED.get(kind, ()) if here[path] == there[path]] == []
    assert [path for path in STRICTER[kind] if _RULES in there[path]] == []


def test_crd_names_scope_and_columns_match_upstream(pair: tuple[str, Json, Json]) -> None:
    _, ours, theirs = pair
    assert {key: ours["spec"][key] for key in ("group", "scope", "names")} == {
        key: theirs["spec"][key] for key in ("group", "scope", "names")
    }
    assert served(ours).get("subresources", {}) == served(theirs).get("subresources", {})
    assert columns(ours) == columns(theirs)


def columns(definition: Json) -> list[Json]:
    return [
        {key: value for key, value in column.items() if key not in _WORDS}
        for column in served(definition)["additionalPrinterColumns"]
    ]


def test_served_kinds_are_those_with_controller(bases: Path) -> None:
    ours = {found["spec"]["names"]["plural"] for found in definitions()}
    theirs = {path.stem.removeprefix(f"{names.GROUP}_") for path in bases.glob(f"{names.GROUP}_*.yaml")}
    assert theirs - ours == {"clusterclasses", "machinepools"}
    assert ours <= theirs


@pytest.fixture
async def real() -> AsyncIterator[HttpClient]:
    """A real server of one's own, because definitions are known to everybody on it."""
    server = Upstream()
    client = HttpClient(kubeconfig.load(server.kubeconfig))
    yield client
    await client.close()
    server.stop()


async def test_kube_apiserver_accepts_definitions_unchanged(real: HttpClient, bases: Path) -> None:
    """Its rules for schemas and their costs are the strictest reader; what it gives back must be what was sent. Before,
    upstream's own definition keeps us out, until it is handed over to us."""
    theirs = yaml.safe_load((bases / f"{names.GROUP}_machinedrainrules.yaml").read_text())
    name = theirs["metadata"]["name"]
    await real.create(DEFINITION.target, "", theirs)
    with pytest.raises(ForeignDefinitions) as refused:
        await install(real, definitions())
    assert refused.value.names == (name,)

    await real.patch(DEFINITION.target, "", name, {"metadata": {"labels": {OWNERSHIP_LABEL: OWNER}}})
    await install(real, definitions())
    taken = INSTALL.taken
    await install(real, definitions())
    assert INSTALL.taken == taken
