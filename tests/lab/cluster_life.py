"""The whole life of a cluster that is declared in one resource: it comes up, is changed in place, scaled, and deleted.
Only what users have is used: manifests, conditions, the cluster's own API, commands."""

from __future__ import annotations

from tests.lab.clusters import NEWER, VERSION, DeclaredCluster, ManagementServer, pool
from tests.lab.nano_plans import Json, version_of

TAINT = {"key": "herd", "value": "wild", "effect": "NoSchedule"}


def live(fleet: ManagementServer, name: str, servers: int, workers: int) -> None:
    number = servers + workers
    cluster = DeclaredCluster(
        fleet,
        name,
        [pool("servers", servers, "ec"), pool("workers", workers, "w", labels={"tier": "web"})],
        upgradeStrategy={"controlPlaneConcurrency": "1", "workerConcurrency": "2"},
    )
    cluster.apply()
    nodes = cluster.has_nodes(number)
    cluster.is_well()
    assert sorted(map(version_of, nodes.values())) == [VERSION] * number
    first = cluster.identities()
    assert len({one.provider_id for one in first.values()} - {""}) == number

    # Labels and taints of a pool, config of the cluster, a new version: at once, as one change of the manifest.
    cluster.pools["workers"] |= {"labels": {"tier": "db"}, "taints": [TAINT]}
    cluster.config["machineGlobalConfig"] = {"debug": True}
    cluster.version = NEWER
    cluster.apply()
    cluster.until(lambda: {version_of(one) for one in cluster.nodes().values()} == {NEWER}, "all Nodes are upgraded")
    cluster.has_nodes(number)
    cluster.until(lambda: _workers_bear(cluster, "db", TAINT), "the workers bear the new label and the taint")
    assert cluster.identities() == first

    cluster.pools["workers"]["quantity"] = workers + 1
    cluster.apply()
    cluster.has_nodes(number + 1)
    cluster.pools["workers"]["quantity"] = 1
    cluster.apply()
    cluster.has_nodes(servers + 1)
    assert cluster.identities("servers") == {name: first[name] for name in cluster.machines("servers")}

    cluster.delete()
    cluster.leaves_nothing()


def _workers_bear(cluster: DeclaredCluster, tier: str, taint: Json) -> bool:
    nodes = cluster.nodes()
    found = [nodes.get(cluster.node_of(machine)) or {} for machine in cluster.machines("workers")]
    return all(
        node and node["metadata"]["labels"].get("tier") == tier and taint in (node["spec"].get("taints") or [])
        for node in found
    )
