"""Two replicas of the manager on the real kube-apiserver: one leads, and when it is gone the other does.

Each replica has a name of its own at the server, whose audit log then tells who has written what and when.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from remuda.app.manager import LEASE_NAME
from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from remuda.lab.simulator.kinds import NEW
from remuda.runtime.caches import Caches
from remuda.runtime.election import LEASE, Lease
from tests.faults.controllers.scenario import Scenario, Stage
from tests.faults.controllers.view import View
from tests.lab import Upstream
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.programs import Program

LEASE_SECONDS = 6.0
LONG_LEASE_SECONDS = 600.0  # longer than any test waits
MOST_ATTEMPTS = 14  # of a follower: while the lease of a dead leader lasts it makes 9, with a pause of 0.8 s after each
MANY_CONFLICTS = 10  # so many in a whole scenario would be two that fight
LEASES = "remuda-system"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete"]},
        {"level": "Metadata", "verbs": ["get"], "resources": [{"group": LEASE.group, "resources": [LEASE.plural]}]},
        {"level": "None"},
    ],
}


class Request(NamedTuple):
    """One write, or one read of a Lease, as the server has recorded it."""

    by: str
    verb: str
    at: datetime
    what: str
    code: int

    @property
    def of_lease(self) -> bool:
        return self.what.startswith("leases/")

    @property
    def acts(self) -> bool:
        """Changes something. An event only tells what was done, and may be late."""
        return self.verb != "get" and self.code < 300 and not self.what.startswith("events/")


class Management:
    """The real server with an audit log."""

    def __init__(self, folder: Path) -> None:
        self.audit_log = folder / "audit.log"
        policy = folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(POLICY))
        self.server = Upstream(f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}")

    def requests(self) -> list[Request]:
        entries = map(json.loads, self.audit_log.read_text().splitlines())
        return [_request(entry) for entry in entries if "impersonatedUser" in entry]


def _request(entry: dict[str, Any]) -> Request:
    where = entry["objectRef"]
    return Request(
        entry["impersonatedUser"]["username"],
        entry["verb"],
        datetime.fromisoformat(entry["requestReceivedTimestamp"]),
        f"{where['resource']}/{where.get('name', '')}",
        entry["responseStatus"]["code"],
    )


@pytest.fixture(scope="module")
def management(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Management]:
    found = Management(tmp_path_factory.mktemp("management"))
    yield found
    found.server.stop()


class Replicas:
    """Two managers beside one provider, and who of them leads.

    A slow machine may keep a leader from renewing its lease. It then ends, and starts again as a Pod would.
    """

    def __init__(self, folder: Path, management: Management, *, first_lease_seconds: float) -> None:
        """The first replica leads first."""
        config = management.server.kubeconfig
        self.cloud = folder / "cloud"
        self.deaths: list[object] = []
        simulator = ("-m", "remuda.lab.simulator", "--kubeconfig", str(config), "--cloud", str(self.cloud))
        self.providers = Program("providers", simulator, folder)
        leases = {f"{folder.name}-a": first_lease_seconds, f"{folder.name}-b": LEASE_SECONDS}
        self.replicas = [
            Program(name, _arguments(folder, config, name, seconds), folder) for name, seconds in leases.items()
        ]
        self._client = HttpClient(kubeconfig.load(config))
        self.view = View(self._client)
        self._caches = Caches(self._client, namespace=LEASES)
        self._leases = self._caches.of(LEASE)
        self._changed = asyncio.Event()
        self._dismissed: set[Program] = set()
        self._supervisors: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._leases.listen(self._notice)
        await self._caches.start()
        for program in (*self.replicas, self.providers):
            await program.start()
            if program is not self.providers:
                self._supervisors.append(asyncio.create_task(self._supervise(program)))
            assert await program.ready(), program.said
            await self.leads()
        await self.view.start()

    def _notice(self, before: Lease | None, after: Lease | None, initial: bool) -> None:
        self._changed.set()

    async def _supervise(self, program: Program) -> None:
        while (
            await program.ended() == 1 and program not in self._dismissed and "another replica may lead" in program.said
        ):
            await program.start()

    def dismiss(self, program: Program) -> None:
        """Do not start it again."""
        self._dismissed.add(program)

    @property
    def holder(self) -> Program | None:
        """Leases name their holder as host_pid_id."""
        lease = self._leases.get(LEASES, LEASE_NAME)
        holder = lease.spec.holder_identity if lease is not None else ""
        return next((one for one in self.replicas if one.alive and f"_{one.pid}_" in holder), None)

    async def leads(self, *but: Program) -> Program:
        """The leader, once it is another than those."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.holder is None or self.holder in but:
                self._changed.clear()
                await self._changed.wait()
        return self.holder

    async def close(self) -> None:
        for task in self._supervisors:
            task.cancel()
        await self.view.close()
        await self._caches.close()
        for program in (*self.replicas, self.providers):
            program.signal(signal.SIGCONT)
            await program.stop()
        await self._client.close()


def _arguments(folder: Path, config: Path, name: str, lease_seconds: float) -> tuple[str, ...]:
    """With a kubeconfig that makes the server know it by its name."""
    content = yaml.safe_load(config.read_text())
    content["users"][0]["user"] |= {"as": name, "as-groups": ["system:masters"]}
    path = folder / f"{name}.kubeconfig"
    kubeconfig.write(path, content)
    return ("-m", "remuda.cli.main", "manager", "--kubeconfig", str(path), "--lease-seconds", str(lease_seconds))


class Short(Scenario):
    control_planes = 1
    workers = 3

    def stages(self) -> list[Stage]:
        return [self.create, partial(self.scale, 5), self.delete]

    async def in_the_middle(self) -> None:
        await self.view.until(lambda: self.worker_machines(), "the first worker is being made")


@pytest.fixture
async def replicas(tmp_path: Path, management: Management, request: pytest.FixtureRequest) -> AsyncIterator[Replicas]:
    """The parameter is the lease of the first replica, in seconds."""
    found = Replicas(tmp_path, management, first_lease_seconds=getattr(request, "param", LEASE_SECONDS))
    try:
        await found.start()
        yield found
    finally:
        await found.close()


@asynccontextmanager
async def scenario(replicas: Replicas, name: str) -> AsyncIterator[None]:
    """Something happens in the middle of a scenario, which then ends as if nothing had."""
    told = Short(replicas, NEW, name)
    task = asyncio.create_task(told.run())
    try:
        await told.in_the_middle()
        yield
        await task
    finally:
        task.cancel()


async def test_follower_takes_over_when_lease_of_killed_leader_ends(replicas: Replicas, management: Management) -> None:
    async with scenario(replicas, "killed"):
        leader = await replicas.leads()
        leader.kill()
        follower = await replicas.leads(leader)
    requests = [one for one in management.requests() if one.of_lease]
    last = max(one.at for one in requests if one.by == leader.name and one.acts)
    taken = min(one.at for one in requests if one.by == follower.name and one.acts and one.at > last)
    attempts = [one for one in requests if one.by == follower.name and last < one.at < taken and one.verb == "get"]
    print(f"the follower leads after {(taken - last).total_seconds():.2f} s and {len(attempts)} attempts")
    assert len(attempts) <= MOST_ATTEMPTS


@pytest.mark.parametrize("replicas", [LONG_LEASE_SECONDS], indirect=True)
async def test_terminated_leader_hands_over_at_once(replicas: Replicas) -> None:
    async with scenario(replicas, "told"):
        leader = await replicas.leads()
        leader.signal(signal.SIGTERM)
        await replicas.leads(leader)  # long before the lease ends
        assert await leader.ended() == 0


async def test_suspended_leader_writes_nothing_after_losing_lease(replicas: Replicas, management: Management) -> None:
    async with scenario(replicas, "cut-off"):
        leader = await replicas.leads()
        replicas.dismiss(leader)
        stopped_at = datetime.now(UTC)
        leader.signal(signal.SIGSTOP)
        follower = await replicas.leads(leader)
        leader.signal(signal.SIGCONT)
        assert await leader.ended() == 1
        assert "another replica may lead" in leader.said
    requests = management.requests()
    lease_writes = (one for one in requests if one.by == follower.name and one.of_lease and one.acts)
    taken_at = min(one.at for one in lease_writes if one.at > stopped_at)
    assert [one for one in requests if one.by == leader.name and one.at > taken_at and one.acts] == []
    refused = [one for one in requests if one.by in (leader.name, follower.name) and one.code == 409]
    assert len(refused) < MANY_CONFLICTS, refused
