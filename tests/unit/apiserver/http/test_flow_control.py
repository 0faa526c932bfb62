"""Which flow a request belongs to, and what its processor time is charged to."""

from __future__ import annotations

import asyncio
import time

import pytest

from remuda.apiserver.auth.user import MASTERS, SERVICE_ACCOUNTS, User
from remuda.apiserver.http.flow_control import FlowControl, QueuedRequest, _Metered
from remuda.apiserver.http.limits import HttpLimits
from remuda.apiserver.http.routes import request_info
from remuda.kube.errors import StatusError
from remuda.kube.web import Request
from tests.unit.apiserver.http.fakes import until

ADMIN = User("admin", groups=(MASTERS,))
BOB, EVE = User("bob"), User("eve")
ACCOUNT = User("system:serviceaccount:ns:node-1", groups=(SERVICE_ACCOUNTS,))
PODS = "/api/v1/namespaces/ns/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


def turn(flows: FlowControl, sender: User, user: User | None = None, path: str = PODS) -> QueuedRequest:
    request = Request(None, "POST", path, {})  # type: ignore[arg-type]
    request.content_length = 10
    return flows.turn(request, request_info(request), sender, user or sender)


async def hold(turn: QueuedRequest, released: asyncio.Event) -> str:
    async def answer() -> str:
        await turn.wait(10)
        await released.wait()
        return "answered"

    return await turn.run(answer())


async def is_refused(turn: QueuedRequest) -> bool:
    released = asyncio.Event()
    released.set()
    try:
        return await hold(turn, released) != "answered"
    except StatusError as error:
        return error.code == 429


async def test_impersonating_request_counts_for_sender_unless_system_masters() -> None:
    flows, released = FlowControl(HttpLimits(user_requests=1)), asyncio.Event()
    held = asyncio.create_task(hold(turn(flows, BOB), released))
    await asyncio.sleep(0)
    assert await is_refused(turn(flows, BOB, EVE))
    assert await is_refused(turn(flows, ADMIN, BOB))
    assert not await is_refused(turn(flows, EVE))
    assert not await is_refused(turn(flows, ADMIN, EVE))
    assert not await is_refused(turn(flows, ADMIN))
    released.set()
    assert await held == "answered"
    assert not await is_refused(turn(flows, BOB))


@pytest.mark.parametrize(("user", "path"), [(ACCOUNT, PODS), (EVE, LEASES)])
async def test_service_accounts_and_leases_have_seats_of_their_own(user: User, path: str) -> None:
    flows, released = FlowControl(HttpLimits(seats=1)), asyncio.Event()
    held = asyncio.create_task(hold(turn(flows, BOB), released))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(hold(turn(flows, EVE), released))
    assert not await is_refused(turn(flows, user, path=path))
    assert not waiting.done()
    released.set()
    assert await held == await waiting == "answered"


async def test_seats_become_free_in_the_next_iteration() -> None:
    """Or all requests whose bodies arrive at once would run in one iteration, each when the one before it has ended."""
    flows, ran = FlowControl(HttpLimits(seats=1)), list[int]()

    async def answer(own: QueuedRequest, number: int) -> None:
        await own.wait(10)
        ran.append(number)

    async def one(number: int) -> None:
        own = turn(flows, BOB)
        await own.run(answer(own, number))

    tasks = [asyncio.create_task(one(number)) for number in range(5)]
    longest, before = 0, 0
    while len(ran) < 5:
        await asyncio.sleep(0)
        longest, before = max(longest, len(ran) - before), len(ran)
    await asyncio.gather(*tasks)
    assert (ran, longest) == ([0, 1, 2, 3, 4], 1)


async def test_cancelled_waiting_request_releases_its_seat() -> None:
    flows, released = FlowControl(HttpLimits(seats=1)), asyncio.Event()
    held = asyncio.create_task(hold(turn(flows, BOB), released))
    await asyncio.sleep(0)
    leaving = asyncio.create_task(hold(turn(flows, EVE), released))
    last = asyncio.create_task(hold(turn(flows, EVE), released))
    await asyncio.sleep(0)
    leaving.cancel()
    released.set()  # in the same moment: the seats may be given to the one that leaves
    assert await held == "answered"
    assert await last == "answered"
    await until(leaving.cancelled)


async def test_metering_counts_cpu_time_but_not_waiting() -> None:
    async def answer() -> int:
        await asyncio.sleep(0.01)
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        try:
            await asyncio.wait_for(asyncio.sleep(60), 0.001)
        except TimeoutError:
            return 7
        return 0

    metered = _Metered(answer())
    assert await metered == 7
    assert 0.02 <= metered.seconds < 0.1
