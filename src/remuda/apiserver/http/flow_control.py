"""Flow control: no user can block the API for others, with any number of connections and any bodies.

A request that is not answered at once counts for its user as soon as its head has arrived; above a limit it is refused
with 429. When its body has arrived it waits for seats in the fair queue of its level, and holds them until it is
answered. Reads from memory and watches need no seats, and neither do health checks.

There are two levels with seats of their own: service accounts (each node has one) and leases, and all other users.
Administrators (system:masters) never wait. All other users wait as themselves, whomever they impersonate: `edit`
permits impersonating every service account of a namespace.

Seats become free in the next iteration of the event loop, so that one iteration never runs more than fits on them, and
health checks are answered in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from remuda.apiserver.auth.user import MASTERS, SERVICE_ACCOUNTS, User
from remuda.apiserver.http.fair_queue import FairQueue
from remuda.apiserver.http.limits import HttpLimits
from remuda.apiserver.http.routes import RequestInfo
from remuda.kube.errors import too_many_requests
from remuda.kube.web import MAX_BODY, Request

_LEASES = ("coordination.k8s.io", "leases")
_RETRY_SECONDS = 1
_READS = frozenset({"get", "list", "watch"})

R = TypeVar("R")
_Queue = FairQueue["asyncio.Future[None]"]


class FlowControl:
    """Fair queues of both levels."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._accounts = self._new_queue()
        self._users = self._new_queue()

    def _new_queue(self) -> _Queue:
        limits = self._limits
        return FairQueue(seats=limits.seats, requests=limits.user_requests, size=limits.user_bytes)

    def turn(self, request: Request, info: RequestInfo, sender: User, user: User) -> QueuedRequest:
        """Return the turn of one request, not entered yet. `user` is whom `sender` acts as."""
        if MASTERS in user.groups:
            return QueuedRequest(None, "", 0, self._limits)
        # If an administrator impersonates a user, the request waits as that user. Other senders wait as themselves.
        flow = user if MASTERS in sender.groups else sender
        is_account = SERVICE_ACCOUNTS in flow.groups or (info.group, info.resource) == _LEASES
        return QueuedRequest(
            self._accounts if is_account else self._users, flow.name, _body_bytes(request, info), self._limits
        )


def _body_bytes(request: Request, info: RequestInfo) -> int:
    """Return the maximum size of the body that will be read for this request."""
    if info.verb in _READS:
        return 0
    return MAX_BODY if request.content_length is None else min(request.content_length, MAX_BODY)


class QueuedRequest:
    """Place of one request in its queue. An administrator's turn has no queue and never waits."""

    __slots__ = ("_flow", "_limits", "_queue", "_seats", "_size")

    def __init__(self, queue: _Queue | None, flow: str, size: int, limits: HttpLimits) -> None:
        self._queue = queue
        self._flow = flow
        self._size = size
        self._limits = limits
        self._seats = 0  # seats that this turn holds

    async def run(self, answer: Awaitable[R]) -> R:
        """Return the answer to the request, and charge its user for it. Raises 429 if the user has too many."""
        queue = self._queue
        if queue is None:
            return await answer
        if not queue.enter(self._flow, self._size):
            close = getattr(answer, "close", None)
            if close is not None:
                close()  # a coroutine that was never awaited
            raise too_many_requests(
                f"user {self._flow} has too many requests in progress: at most {self._limits.user_requests} with "
                f"{self._limits.user_bytes >> 20} MiB in their bodies; retry when some of them have been answered",
                _RETRY_SECONDS,
            )
        metered = _Metered(answer)
        try:
            return await metered
        finally:
            queue.leave(self._flow, self._size, metered.seconds)
            if self._seats:
                # Not before the next iteration. Otherwise each of many requests whose bodies arrived at once would find
                # the seats free that the one before it has just released.
                asyncio.get_running_loop().call_soon(_release, queue, self._seats)

    async def wait(self, size: int) -> None:
        """Wait for the seats that a body of this size needs."""
        queue = self._queue
        if queue is None or self._seats:
            return
        seats = queue.seats_for(size, self._limits.seat_bytes)
        if queue.take(self._flow, seats):
            self._seats = seats
            return
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.wait(self._flow, seats, called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self._seats = seats  # seats assigned at the moment when the client left: `run` releases them
            else:
                queue.withdraw(self._flow, called)
                _wake(queue)  # other requests may have waited only for this one
            raise
        self._seats = seats


def _release(queue: _Queue, seats: int) -> None:
    queue.release(seats)
    _wake(queue)


def _wake(queue: _Queue) -> None:
    """Assign free seats to the next requests."""
    while (granted := queue.next()) is not None:
        seats, called = granted
        if called.done():
            queue.release(seats)  # its client has left, and its task has not run since
        else:
            called.set_result(None)


class _Metered(Awaitable[R]):
    """An awaitable that counts the processor time which the event loop's thread spends on it."""

    __slots__ = ("_answer", "seconds")

    def __init__(self, answer: Awaitable[R]) -> None:
        self._answer = answer
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, R]:
        steps = self._answer.__await__()
        sent: Any = None
        error: BaseException | None = None
        while True:
            began = time.thread_time()
            try:
                awaited = steps.send(sent) if error is None else steps.throw(error)
            except StopIteration as end:
                result: R = end.value
                return result
            finally:
                self.seconds += time.thread_time() - began
            try:
                sent, error = (yield awaited), None
            except BaseException as thrown:
                sent, error = None, thrown
