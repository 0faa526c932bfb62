"""One round of the death campaign: kill, look at what users are shown, revive, and look again.

Seconds are measured by the times that the manager writes into conditions. They are reported and never asserted: how
long a busy machine takes says nothing about the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime

from tests.faults.deaths.victims import MANAGER, TRUE, Host, Seen, Verdict, Victim, complaints, unsaid, verdict
from tests.lab.clusters import CONTROL_PLANES, NAMESPACE, PROVISIONING, Fleet
from tests.lab.killable import KillableCluster
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.up import Json, eventually

SERVERS, WORKERS = "servers", "workers"
DUE_SECONDS = 60.0  # users must be shown the truth by then
HEALTHY = Verdict(frozenset({TRUE}))
_MANAGEMENT = "/apis/management.cattle.io/v3/clusters"
_CAPI = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/clusters"
_CONFIG_MAPS = "/api/v1/configmaps?limit=1"
_LOOK_SECONDS = 0.5
_IDLE_SECONDS = 5.0  # after each round


class Deaths:
    """A cluster of nano that is healthy before and after each round."""

    def __init__(self, fleet: Fleet, cluster: KillableCluster, report: Callable[[str], None]) -> None:
        self._fleet = fleet
        self._cluster = cluster
        self._report = report

    def hosts(self) -> list[Host]:
        cluster, leader = self._cluster, self._cluster.leader()
        return [
            Host(name, pool == SERVERS, name == leader, tuple(sorted(cluster.programs(name))))
            for pool in (SERVERS, WORKERS)
            for name in sorted(cluster.machines(pool))
        ]

    def round(self, victim: Victim) -> None:
        standing, wanted = self._cluster.identities(), verdict(victim, self.hosts())
        told = self._program_dies(victim) if wanted.heals else self._hosts_die(victim, wanted)
        assert self._cluster.identities() == standing, f"{victim}: a machine was replaced"
        self.is_idle(_IDLE_SECONDS)
        self._report(f"{victim}: {told}")

    def _program_dies(self, victim: Victim) -> str:
        died = time.time()
        self._kill_program(victim)
        seen = self._heals(victim)
        flipped = ", was shown as not ready" * (max(one.since for one in seen.values()) > died)
        return f"healthy {time.time() - died:.0f} s after the kill{flipped}"

    def _hosts_die(self, victim: Victim, wanted: Verdict) -> str:
        nodes = {name: self._cluster.node_of(name) for name in wanted.named}
        died = time.time()
        for host in victim.hosts:
            self._cluster.kill(host.machine)
        shown = self._is_shown(wanted, victim, nodes)
        late = ", LATE" * (max(one.since for one in shown.values()) - died > DUE_SECONDS)
        booted = time.time()
        for host in victim.hosts:
            self._cluster.boot(host.machine)
        healed = self._heals(victim)
        first = next(iter(shown.values()))
        return (
            f"{first.status} ({first.reason}) {_seconds(shown, died)} after the kill{late}; "
            f"healthy {_seconds(healed, booted)} after the start"
        )

    def _kill_program(self, victim: Victim) -> None:
        """Kill it, and wait until another process has taken its place."""
        if victim.program == MANAGER:
            self._fleet.kill()
            self._fleet.start_again()
            return
        (host,) = victim.hosts
        before = self._cluster.kill_program(host.machine, victim.program)
        self._until(
            lambda: self._cluster.programs(host.machine).get(victim.program, before) != before,
            lambda: f"{victim} has not been started again",
        )

    def _is_shown(self, wanted: Verdict, victim: Victim, nodes: Mapping[str, str]) -> dict[str, Seen]:
        """Wait until all kinds show what is true, then until `remuda why` names the dead."""
        self._until(lambda: not self._complaints(wanted), lambda: f"{victim} died: {self._complaints(wanted)}")
        seen = self.seen()
        missing: list[str] = []

        def names_the_dead() -> bool:
            code, told = self._cluster.why()
            missing[:] = [*unsaid(wanted, nodes, told), told]
            return code == 1 and len(missing) == 1

        self._until(names_the_dead, lambda: f"{victim} died, and remuda why is wrong: {'; '.join(missing)}")
        return seen

    def _heals(self, victim: Victim) -> dict[str, Seen]:
        """Wait until the cluster is healthy by the word of its Nodes, of all kinds and of `remuda why`."""
        self._cluster.has_nodes(sum(one["quantity"] for one in self._cluster.pools.values()))
        self._until(lambda: not self._complaints(HEALTHY), lambda: f"{victim} lives again: {self._complaints(HEALTHY)}")
        self._cluster.is_well()
        return self.seen()

    def is_idle(self, seconds: float) -> None:
        """Wait until the manager's engine has stored nothing for so long."""
        revision, since = self._revision(), time.monotonic()
        deadline = since + LIMIT_SECONDS
        while time.monotonic() - since < seconds:
            time.sleep(_LOOK_SECONDS)
            if (now := self._revision()) != revision:
                assert time.monotonic() < deadline, f"still writes {self._written_after(revision)}"
                revision, since = now, time.monotonic()

    def seen(self) -> dict[str, Seen]:
        """Return the summary of each kind that stands for the cluster."""
        declared = self._get(f"{PROVISIONING}/{self._cluster.name}")
        management = self._get(f"{_MANAGEMENT}/{declared['status']['clusterName']}")
        return {
            "provisioning Cluster": _seen(declared, "Ready"),
            "management Cluster": _seen(management, "Ready"),
            "RKEControlPlane": _seen(self._get(f"{CONTROL_PLANES}/{self._cluster.name}"), "Ready"),
            "CAPI Cluster": _seen(self._get(f"{_CAPI}/{self._cluster.name}"), "Available"),
        }

    def _complaints(self, wanted: Verdict) -> list[str]:
        found = list(complaints(wanted, self.seen()))
        ready = self._get(f"{PROVISIONING}/{self._cluster.name}")["status"].get("ready", False)
        if ready != (TRUE in wanted.statuses):
            found.append(f"status.ready of the provisioning Cluster is {ready}")
        return found

    def _get(self, path: str) -> Json:
        reply = self._fleet.http("GET", path)
        assert reply.code == 200, reply
        return dict(reply.body)

    def _revision(self) -> int:
        return int(self._get(_CONFIG_MAPS)["metadata"]["resourceVersion"])

    def _written_after(self, revision: int) -> list[str]:
        paths = (*self._fleet.collections(), "/api/v1/events", "/apis/coordination.k8s.io/v1/leases")
        return [
            f"{path.rpartition('/')[2]} {item['metadata']['name']}"
            for path in paths
            for item in self._fleet.items(path)
            if int(item["metadata"]["resourceVersion"]) > revision
        ]

    def _until(self, holds: Callable[[], object], otherwise: Callable[[], str]) -> None:
        eventually(holds, lambda: f"not within {LIMIT_SECONDS:g} s: {otherwise()}\n{self._fleet.diagnosis}")


def _seen(obj: Json, type: str) -> Seen:
    found = next((one for one in obj["status"].get("conditions", ()) if one["type"] == type), {})
    since = datetime.fromisoformat(found["lastTransitionTime"]).timestamp() if found else 0.0
    return Seen(found.get("status", ""), found.get("reason", ""), found.get("message", ""), since)


def _seconds(seen: Mapping[str, Seen], began: float) -> str:
    """Return how long it took until the last kind changed; conditions carry whole seconds."""
    return f"{max(0.0, max(one.since for one in seen.values()) - began):.0f} s"
