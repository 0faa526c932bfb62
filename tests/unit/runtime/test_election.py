"""Leader election on the engine, in virtual time: minutes of leases pass in no time."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.apiserver.server import ApiServer
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.kube.objects import Key
from remuda.runtime.election import LEASE, Election, ElectionSettings, Lease, own_identity
from remuda.runtime.outcome import Retryable
from remuda.runtime.tasks import Tasks, ended
from tests.unit.runtime.things import until, virtually

KEY = Key("default", "remuda")


class Link:
    """A process's way to the server. While it is down nothing is answered; `slow` delays every answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.down = False
        self.slow = 0.0

    async def _answer(self, asked: Any) -> bytes:
        if self.down:
            asked.close()
            raise OSError("no route to host")
        value: bytes = await asked
        await asyncio.sleep(self.slow)
        return value

    async def get(self, *args: Any, **options: Any) -> bytes:
        return await self._answer(self._client.get(*args, **options))

    async def create(self, *args: Any, **options: Any) -> bytes:
        return await self._answer(self._client.create(*args, **options))

    async def patch(self, *args: Any, **options: Any) -> bytes:
        return await self._answer(self._client.patch(*args, **options))


class Candidate:
    """Stands for the lead for ever, and takes note of when it led."""

    def __init__(self, client: Client, name: str, settings: ElectionSettings | None = None) -> None:
        self.link = Link(client)
        self.election = Election(self.link, KEY, identity=name, settings=settings)  # type: ignore[arg-type]
        self.lost: list[str] = []
        self._tasks = Tasks()
        self.task = self._tasks.spawn(name, self._stand())

    async def _stand(self) -> None:
        while True:
            await self.election.campaign()
            self.lost.append(await self.election.hold())

    @property
    def leads(self) -> bool:
        return self.election.leading

    async def die(self) -> None:
        """As a process does that is killed: without a last word."""
        await ended(self.task)


async def lease(client: Client) -> Lease:
    return LEASE.decode(await client.get(LEASE.target, *KEY))


@virtually
async def test_first_candidate_leads_and_renews_while_second_waits(server: ApiServer) -> None:
    client = server.client()
    first, second = Candidate(client, "first"), Candidate(client, "second")
    await asyncio.sleep(60)
    assert (first.leads, second.leads) == (True, False)
    before = await lease(client)
    assert (before.spec.holder_identity, before.spec.lease_duration_seconds) == ("first", 15)
    assert before.spec.lease_transitions == 0
    assert second.election.holder == "first"
    await asyncio.sleep(60)
    after = await lease(client)
    assert after.spec.renew_time > before.spec.renew_time  # type: ignore[operator]
    assert after.spec.acquire_time == before.spec.acquire_time
    assert msgspec.json.decode(await client.get(LEASE.target, *KEY))["spec"]["renewTime"][-8] == "."
    await first.die()
    await second.die()


@virtually
async def test_candidate_takes_over_within_lease_duration_after_leader_death(server: ApiServer) -> None:
    client = server.client()
    first, second = Candidate(client, "first"), Candidate(client, "second")
    await asyncio.sleep(30)
    await first.die()
    died = asyncio.get_running_loop().time()
    while not second.leads:
        await asyncio.sleep(0.1)
    assert 10 < asyncio.get_running_loop().time() - died <= 15 + 2.4 + 0.1
    found = await lease(client)
    assert (found.spec.holder_identity, found.spec.lease_transitions) == ("second", 1)
    await second.die()


@virtually
async def test_resigned_lease_is_acquired_at_next_attempt(server: ApiServer) -> None:
    client = server.client()
    first, second = Candidate(client, "first"), Candidate(client, "second")
    await asyncio.sleep(30)
    await ended(first.task)
    await first.election.resign()
    assert (await lease(client)).spec.holder_identity == ""
    await asyncio.sleep(2.5)
    assert second.leads
    await second.die()


@virtually
async def test_resign_by_non_holder_keeps_the_lease(server: ApiServer) -> None:
    client = server.client()
    first = Candidate(client, "first")
    await asyncio.sleep(5)
    other = Election(client, KEY, identity="other")
    await other.resign()
    assert (await lease(client)).spec.holder_identity == "first"
    await first.die()


@virtually
async def test_disconnected_leader_stops_before_new_leader_starts(server: ApiServer) -> None:
    client = server.client()
    loop = asyncio.get_running_loop()
    first, second = Candidate(client, "first"), Candidate(client, "second")
    await asyncio.sleep(30)
    first.link.down = True
    cut = loop.time()
    while first.leads:
        assert not second.leads
        await asyncio.sleep(0.05)
    assert loop.time() - cut <= 10 + 0.1
    assert first.lost == ["lease default/remuda could not be renewed; it is possibly free"]
    while not second.leads:
        await asyncio.sleep(0.05)
    first.link.down = False
    await asyncio.sleep(60)
    assert (first.leads, second.leads) == (False, True)
    await first.die()
    await second.die()


@virtually
async def test_leader_permit_is_denied_once_lease_has_expired(server: ApiServer) -> None:
    first = Candidate(server.client(), "first")
    await asyncio.sleep(30)
    first.link.down = True
    while first.leads:
        first.election.permit()
        await asyncio.sleep(0.05)
    with pytest.raises(Retryable, match="lease default/remuda has expired"):
        first.election.permit()
    first.link.down = False
    await asyncio.sleep(30)
    first.election.permit()
    await first.die()


@virtually
async def test_short_interruptions_keep_leadership(server: ApiServer) -> None:
    first = Candidate(server.client(), "first")
    await asyncio.sleep(10)
    for _ in range(5):
        first.link.down = True
        await asyncio.sleep(5)
        first.link.down = False
        await asyncio.sleep(3)
    assert first.leads
    assert first.lost == []
    await first.die()


@virtually
async def test_slow_renewal_response_loses_leadership(server: ApiServer) -> None:
    first = Candidate(server.client(), "first")
    await asyncio.sleep(10)
    first.link.slow = 30.0
    await asyncio.sleep(13)
    assert not first.leads
    assert len(first.lost) == 1
    await first.die()


@virtually
async def test_leader_stops_and_names_new_holder_when_lease_is_stolen(server: ApiServer) -> None:
    client = server.client()
    first = Candidate(client, "first")
    await asyncio.sleep(10)
    await client.patch(LEASE.target, *KEY, {"spec": {"holderIdentity": "usurper", "leaseDurationSeconds": 3600}})
    await asyncio.sleep(3)
    assert not first.leads
    assert first.lost == ["lease default/remuda could not be renewed; it is held by usurper"]
    await first.die()


@virtually
async def test_deleted_lease_is_recreated_by_its_leader(server: ApiServer) -> None:
    client = server.client()
    first = Candidate(client, "first")
    await asyncio.sleep(10)
    await client.delete(LEASE.target, *KEY)
    await asyncio.sleep(10)
    assert first.leads
    assert (await lease(client)).spec.holder_identity == "first"
    await first.die()


@virtually
async def test_lease_timestamps_of_other_holders_are_ignored(server: ApiServer) -> None:
    """A lease renewed, so it says, in another century is respected for as long as it lasts from now."""
    client = server.client()
    for times in ("1999-01-01T00:00:00.000000Z", "2199-01-01T00:00:00.000000Z"):
        spec = {"holderIdentity": "ghost", "leaseDurationSeconds": 40, "acquireTime": times, "renewTime": times}
        await client.create(LEASE.target, "default", {"metadata": {"name": KEY.name}, "spec": spec})
        began = asyncio.get_running_loop().time()
        first = Candidate(client, "first")
        while not first.leads:
            await asyncio.sleep(0.1)
        assert 40 <= asyncio.get_running_loop().time() - began <= 43
        await first.die()
        await client.delete(LEASE.target, *KEY)


@virtually
async def test_restarted_process_with_same_identity_leads_immediately(server: ApiServer) -> None:
    client = server.client()
    first = Candidate(client, "pod-0")
    await asyncio.sleep(10)
    await first.die()
    again = Candidate(client, "pod-0")
    await asyncio.sleep(0.1)
    assert again.leads
    assert (await lease(client)).spec.lease_transitions == 0
    await again.die()


@virtually
async def test_foreign_lease_labels_are_kept(server: ApiServer) -> None:
    client = server.client()
    first = Candidate(client, "first")
    await asyncio.sleep(10)
    await client.patch(LEASE.target, *KEY, {"metadata": {"labels": {"team": "a"}}})
    await asyncio.sleep(10)
    assert first.leads
    assert (await lease(client)).metadata.labels == {"team": "a"}
    await first.die()


def trouble(seed: list[tuple[int, str, float]]) -> None:
    async def scenario(server: ApiServer) -> None:
        """Whatever happens to their links, no two candidates lead at once; once all is well, somebody does."""
        candidates = [Candidate(server.client(), f"c{number}") for number in range(3)]
        loop = asyncio.get_running_loop()
        calm = loop.time()
        for number, what, seconds in [*seed, (0, "well", 60.0)]:
            link = candidates[number].link
            link.down = what == "down"
            link.slow = {"slow": 4.0, "very slow": 20.0}.get(what, 0.0)
            if what == "well":
                for candidate in candidates:
                    candidate.link.down, candidate.link.slow = False, 0.0
                calm = loop.time()
            until = loop.time() + seconds
            while loop.time() < until:
                await asyncio.sleep(0.25)
                assert sum(candidate.leads for candidate in candidates) <= 1
        assert loop.time() - calm >= 60
        assert sum(candidate.leads for candidate in candidates) == 1
        for candidate in candidates:
            await candidate.die()

    with tempfile.TemporaryDirectory() as folder:
        virtually(scenario)(Path(folder))


TROUBLES = st.tuples(
    st.integers(0, 2), st.sampled_from(("down", "slow", "very slow", "well")), st.sampled_from((1.0, 5.0, 12.0, 25.0))
)


@settings(max_examples=20)
@given(st.lists(TROUBLES, min_size=1, max_size=8))
def test_two_candidates_never_lead_at_once_under_link_failures(seed: list[tuple[int, str, float]]) -> None:
    trouble(seed)


@pytest.mark.parametrize(("lease_seconds", "renew", "retry"), [(10, 10, 2), (15, 2, 2), (15, 10, 0)])
def test_inconsistent_election_durations_are_rejected(lease_seconds: float, renew: float, retry: float) -> None:
    with pytest.raises(ValueError, match="must be greater than renew_seconds"):
        ElectionSettings(lease_seconds=lease_seconds, renew_seconds=renew, retry_seconds=retry)


def test_election_identities_are_unique() -> None:
    assert own_identity() != own_identity()


async def test_election_logs_forbidden_lease_access(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    class Forbidding:
        async def get(self, *args: Any, **options: Any) -> bytes:
            raise StatusError(403, "Forbidden", "leases are forbidden")

    election = Election(Forbidding(), KEY)  # type: ignore[arg-type]
    campaign = asyncio.ensure_future(election.campaign())
    await until(lambda: "lease default/remuda: leases are forbidden" in caplog.text)
    await ended(campaign)
    await election.resign()


@virtually
async def test_unreachable_lease_is_reported_as_problem_after_lease_duration(server: ApiServer) -> None:
    leader, follower = Candidate(server.client(), "leader"), Candidate(server.client(), "follower")
    await asyncio.sleep(60)
    assert (leader.election.problem(), follower.election.problem()) == ("", "")
    follower.link.down = True
    await asyncio.sleep(10)
    assert follower.election.problem() == ""
    await asyncio.sleep(20)
    assert "lease default/remuda has been unreachable for 3" in follower.election.problem()
    assert follower.election.problem().endswith(": no route to host")
    assert leader.election.problem() == ""
    follower.link.down = False
    await asyncio.sleep(3)
    assert follower.election.problem() == ""
    await leader.die()
    await follower.die()
