"""A cluster's whole life, declared in one resource, on hosts that are processes: three servers and two workers, changed
in place, scaled and deleted. Only what users have is used: manifests, conditions, the cluster's own API, commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.clusters import NEWER, VERSION, Declared, Fleet, pool
from tests.lab.nano_plans import version_of

TAINT = {"key": "herd", "value": "wild", "effect": "NoSchedule"}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet()
    try:
        fleet.add_nano(tmp_path, VERSION, NEWER)
        yield fleet
    finally:
        fleet.stop()


def test_a_declared_cluster_lives_on_the_same_machines_until_it_is_deleted(fleet: Fleet) -> None:
    prairie = Declared(
        fleet,
        "prairie",
        [pool("servers", 3, "ec"), pool("workers", 2, "w", labels={"tier": "web"})],
        upgradeStrategy={"controlPlaneConcurrency": "1", "workerConcurrency": "2"},
    )
    prairie.apply()
    nodes = prairie.has_nodes(5)
    prairie.is_well()
    assert sorted(map(version_of, nodes.values())) == [VERSION] * 5
    first = prairie.standing()
    assert len({one.provider_id for one in first.values()} - {""}) == 5

    # Labels and taints of a pool, config of the cluster, a new version: at once, as one change of the manifest.
    prairie.pools["workers"] |= {"labels": {"tier": "db"}, "taints": [TAINT]}
    prairie.config["machineGlobalConfig"] = {"debug": True}
    prairie.version = NEWER
    prairie.apply()
    prairie.until(lambda: {version_of(one) for one in prairie.nodes().values()} == {NEWER}, "all Nodes are upgraded")
    nodes = prairie.has_nodes(5)
    for machine in prairie.machines("workers"):
        node = nodes[prairie.node_of(machine)]
        assert node["metadata"]["labels"]["tier"] == "db"
        assert TAINT in node["spec"]["taints"]
    assert prairie.standing() == first

    prairie.pools["workers"]["quantity"] = 3
    prairie.apply()
    prairie.has_nodes(6)
    prairie.pools["workers"]["quantity"] = 1
    prairie.apply()
    prairie.has_nodes(4)
    assert prairie.standing("servers") == {name: first[name] for name in prairie.machines("servers")}

    prairie.delete()
    prairie.leaves_nothing()
