"""Each program, each host and each pair of hosts of a cluster dies in turn. After each death all kinds that stand for
the cluster show what is true, `remuda why` names the dead, what can heal heals, and the healthy cluster writes nothing.

    make faults                                              one server and one worker: a program and both hosts
    REMUDA_ROUNDS=full pytest -s tests/faults/deaths         three servers and two workers: every victim
    REMUDA_ROUNDS=5 REMUDA_SEED=7 pytest -s tests/faults/deaths -k process           five of them, chosen by the seed
"""

from __future__ import annotations

from pathlib import Path

from tests.faults.conftest import Campaign
from tests.faults.deaths.rounds import SERVERS, WORKERS, Deaths
from tests.faults.deaths.victims import all_victims, few_victims, number_of_victims
from tests.lab.cluster_on_hosts import ClusterOnHosts, fleet_on
from tests.lab.cluster_on_processes import ClusterOnProcesses
from tests.lab.clusters import VERSION, Fleet, pool
from tests.lab.hosts import open_network
from tests.lab.killable import KillableCluster
from tests.lab.up import Json

_SERVERS, _WORKERS = 3, 2  # of the whole campaign
# The gate does not wait for the default of 40 s; the whole campaign does, as users do.
_QUICK_TO_NOTICE = {"kube-controller-manager-arg": ["node-monitor-grace-period=20s"]}
_LONG_IDLE_SECONDS = 75.0  # finds a write every minute


def _pools(campaign: Campaign) -> list[Json]:
    servers, workers = (1, 1) if campaign.short else (_SERVERS, _WORKERS)
    return [pool(SERVERS, servers, "ec"), pool(WORKERS, workers, "w")]


def _config(campaign: Campaign) -> Json:
    return {"machineGlobalConfig": _QUICK_TO_NOTICE} if campaign.short else {}


def test_deaths_of_process_hosts_are_shown_and_heal(tmp_path: Path, campaign: Campaign) -> None:
    fleet = Fleet()
    try:
        fleet.add_nano(tmp_path, VERSION)
        _kill_each(fleet, ClusterOnProcesses(fleet, "prairie", _pools(campaign), **_config(campaign)), campaign)
    finally:
        fleet.stop()


def test_deaths_of_nspawn_hosts_are_shown_and_heal(tmp_path: Path, campaign: Campaign) -> None:
    with open_network(tmp_path / "network") as network, fleet_on(network) as fleet:
        fleet.add_nano(tmp_path, VERSION)
        place = {"bridge": network.bridge, "subnet": str(network.subnet)}
        cluster = ClusterOnHosts(fleet, "prairie", _pools(campaign), place, **_config(campaign))
        try:
            _kill_each(fleet, cluster, campaign)
        finally:
            cluster.delete()


def _kill_each(fleet: Fleet, cluster: KillableCluster, campaign: Campaign) -> None:
    deaths = Deaths(fleet, cluster, campaign.note)
    cluster.apply()
    cluster.has_nodes(sum(one["quantity"] for one in cluster.pools.values()))
    cluster.is_well()
    hosts = deaths.hosts()
    if campaign.short:
        victims = few_victims(hosts, campaign.seed)
    else:
        victims = all_victims(hosts)
        campaign.chance.shuffle(victims)
    rounds = campaign.plan(len(victims), full=number_of_victims(hosts, _SERVERS, _WORKERS))
    for victim in victims[:rounds]:
        deaths.round(victim)
        campaign.done += 1
    if not campaign.short:
        deaths.is_idle(_LONG_IDLE_SECONDS)
