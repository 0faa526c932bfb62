"""The whole life of a cluster that is declared in one resource: it comes up, is changed in place, scaled, and deleted.
Only what users have is used: manifests, conditions, the cluster's own API, commands."""

from __future__ import annotations

from tests.lab.clusters import NEWER, VERSION, DeclaredCluster, ManagementServer, pool
from tests.lab.nano_plans import Json, version_of

TAINT = {"key": "herd", "value": "wild", "effect": "NoSchedule"}


def live(fleet: ManagementServer, name: str, servers: int, workers: int) -> None:
    number = servers + workers
    prairie = DeclaredCluster(
        fleet,
        name,
        [pool("servers", servers, "ec"), pool("workers", workers, "w", labels={"tier": "web"})],
        upgradeStrategy={"controlPlaneConcurrency": "1", "workerConcurrency": "2"},
    )
    prairie.apply()
    nodes = prairie.has_nodes(number)
    prairie.is_well()
    assert sorted(map(version_of, nodes.values())) == [VERSION] * number
    first = prairie.identities()
    assert len({one.provider_id for one in first.values()} - {""}) == number

    # Labels and taints of a pool, config of the cluster, a new version: at once, as one change of the manifest.
    prairie.pools["workers"] |= {"labels": {"tier": "db"}, "taints": [TAINT]}
    prairie.config["machineGlobalConfig"] = {"debug": True}
    prairie.version = NEWER
    prairie.apply()
    prairie.until(lambda: {version_of(one) for one in prairie.nodes().values()} == {NEWER}, "all Nodes are upgraded")
    prairie.has_nodes(number)
    prairie.until(lambda: _workers_bear(prairie, "db", TAINT), "the workers bear the new label and the taint")
    assert prairie.identities() == first

    prairie.pools["workers"]["quantity"] = workers + 1
    prairie.apply()
    prairie.has_nodes(number + 1)
    prairie.pools["workers"]["quantity"] = 1
    prairie.apply()
    prairie.has_nodes(servers + 1)
    assert prairie.identities("servers") == {name: first[name] for name in prairie.machines("servers")}

    prairie.delete()
    prairie.leaves_nothing()


def _workers_bear(cluster: DeclaredCluster, tier: str, taint: Json) -> bool:
    nodes = cluster.nodes()
    found = [nodes.get(cluster.node_of(machine)) or {} for machine in cluster.machines("workers")]
    return all(
        node and node["metadata"]["labels"].get("tier") == tier and taint in (node["spec"].get("taints") or [])
        for node in found
    )
