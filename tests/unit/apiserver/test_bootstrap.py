"""A new server has its namespaces and roles; an old one gets back what is missing and keeps what it was given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from remuda.apiserver.bootstrap import bootstrap
from remuda.kube.client import Target
from tests.unit.apiserver.engine import CLUSTER_ROLES, NAMESPACES, Engine

BINDINGS = Target("rbac.authorization.k8s.io/v1", "clusterrolebindings")
KEEP = {"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}}


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data", upkeep=False)
    await bootstrap(engine.registry)
    yield engine
    await engine.close()


async def test_new_server_has_default_namespaces_and_roles(engine: Engine) -> None:
    assert engine.names(NAMESPACES) == ["default", "kube-node-lease", "kube-public", "kube-system"]
    assert {"admin", "cluster-admin", "edit", "view"} <= set(engine.names(CLUSTER_ROLES))
    assert "cluster-admin" in engine.names(BINDINGS)


async def test_repeated_bootstrap_writes_nothing(engine: Engine) -> None:
    before = engine.store.revision
    await bootstrap(engine.registry)
    assert engine.store.revision == before


async def test_bootstrap_recreates_deleted_roles_and_namespaces(engine: Engine) -> None:
    await engine.delete(CLUSTER_ROLES, "", "view")
    await engine.delete(NAMESPACES, "", "kube-node-lease")
    entry = engine.find(NAMESPACES, "", "kube-node-lease")
    assert entry is not None
    entry["spec"]["finalizers"] = []
    await engine.client.update(NAMESPACES, "", "kube-node-lease", entry, subresource="finalize")
    assert engine.find(NAMESPACES, "", "kube-node-lease") is None
    await bootstrap(engine.registry)
    assert engine.find(CLUSTER_ROLES, "", "view")
    assert engine.find(NAMESPACES, "", "kube-node-lease")


async def test_bootstrap_restores_removed_rules_and_keeps_added_rules(engine: Engine) -> None:
    name = "system:discovery"
    extra = {"nonResourceURLs": ["/mine"], "verbs": ["get"]}
    await engine.patch(CLUSTER_ROLES, "", name, {"rules": [extra]})
    await bootstrap(engine.registry)
    rules = (engine.find(CLUSTER_ROLES, "", name) or {})["rules"]
    assert rules[0] == extra
    assert len(rules) > 1


async def test_bootstrap_restores_removed_subjects(engine: Engine) -> None:
    await engine.patch(BINDINGS, "", "cluster-admin", {"subjects": None})
    await bootstrap(engine.registry)
    assert (engine.find(BINDINGS, "", "cluster-admin") or {})["subjects"][0]["name"] == "system:masters"


async def test_bootstrap_skips_objects_with_autoupdate_false(engine: Engine) -> None:
    await engine.patch(BINDINGS, "", "cluster-admin", {**KEEP, "subjects": None})
    await bootstrap(engine.registry)
    assert not (engine.find(BINDINGS, "", "cluster-admin") or {}).get("subjects")


async def test_bootstrap_recreates_binding_to_wrong_role(engine: Engine) -> None:
    old = engine.find(BINDINGS, "", "cluster-admin")
    assert old is not None
    await engine.delete(BINDINGS, "", "cluster-admin")
    wrong = {
        "metadata": {"name": "cluster-admin", "annotations": old["metadata"]["annotations"]},
        "roleRef": {**old["roleRef"], "name": "view"},
    }
    await engine.create(BINDINGS, "", wrong)
    await bootstrap(engine.registry)
    assert (engine.find(BINDINGS, "", "cluster-admin") or {})["roleRef"]["name"] == "cluster-admin"
