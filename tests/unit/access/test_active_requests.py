"""Calls under way: who is asked about them, and when. Whoever decides is the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from remuda.access import active_requests
from remuda.access.active_requests import ActiveRequest, ActiveRequests
from remuda.access.interfaces import Caller
from remuda.kube import clock
from remuda.kube.errors import StatusError, service_unavailable, unauthorized
from tests.lab.limits import LIMIT_SECONDS


class Judge:
    """Says what the test has it say, and remembers whom it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.why: dict[str, str] = {}
        self.error: Exception | None = None
        self.expires: dict[str, float] = {}
        self.active_requests = ActiveRequests(self._still, lambda caller: self.expires.get(caller.name))

    async def _still(self, caller: Caller, cluster: str) -> str:
        self.asked.append(caller.name)
        if self.error is not None:
            raise self.error
        return self.why.get(caller.name, "")

    def call(self, name: str, *, lasting: bool = True) -> ActiveRequest:
        return self.active_requests.begin(Caller(name=name), "c", lasting=lasting).__enter__()

    async def until(self, asked: int) -> None:
        await eventually(lambda: len(self.asked) >= asked and not self.active_requests._checking)


async def eventually(true: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not true():
            await asyncio.sleep(0.01)


async def test_recheck_authorizes_each_matching_caller_once() -> None:
    judge = Judge()
    calls = [judge.call("ann"), judge.call("ann"), judge.call("bob")]
    judge.why["ann"] = "no grant"
    judge.active_requests.recheck(lambda call: call.caller.name == "ann")
    await judge.until(1)
    assert judge.asked == ["ann"]
    assert [call.why for call in calls] == ["no grant", "no grant", ""]


async def test_recheck_without_active_requests_skips_authorization() -> None:
    judge = Judge()
    judge.call("ann").__exit__()
    judge.active_requests.recheck(lambda call: True, twice=True)
    assert not judge.active_requests._checking


async def test_request_is_reauthorized_at_token_expiry_and_continues_if_still_valid() -> None:
    judge = Judge()
    judge.expires = {"ann": clock.time() + 0.1, "bob": clock.time() + 0.1}
    ann, bob, brief = judge.call("ann"), judge.call("bob"), judge.call("cal", lasting=False)
    judge.why["bob"] = "it expired"
    del judge.expires["ann"]
    await judge.until(2)
    assert (ann.why, bob.why, brief.why) == ("", "it expired", "")
    assert ann._timer is None


async def test_request_continues_and_is_rechecked_after_authorization_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_requests, "_AGAIN_SECONDS", 0.05)
    judge = Judge()
    judge.error, judge.why["ann"] = service_unavailable("no etcd"), "no grant"
    call = judge.call("ann")
    judge.active_requests.recheck(lambda call: True)
    await eventually(lambda: len(judge.asked) >= 2)
    assert not call.why
    judge.error = None
    await eventually(lambda: call.why)
    assert call.why == "no grant"


async def test_rejected_token_ends_request_with_the_logged_cause() -> None:
    judge = Judge()
    judge.error = unauthorized("not good")
    judge.error.__cause__ = RuntimeError("it was revoked")
    call = judge.call("ann")
    judge.active_requests.recheck(lambda call: True)
    await judge.until(1)
    assert call.why == "it was revoked"


async def test_ended_request_raises_status_error_but_task_cancellation_propagates() -> None:
    judge = Judge()

    async def wait(call: ActiveRequest) -> str:
        try:
            with call.interrupting():
                await asyncio.sleep(LIMIT_SECONDS)
        except StatusError as error:
            return error.message
        return "over"

    ended, cancelled = judge.call("ann"), judge.call("bob")
    tasks = [asyncio.create_task(wait(call)) for call in (ended, cancelled)]
    await asyncio.sleep(0)
    ended.end("no grant")
    tasks[1].cancel()
    assert await tasks[0] == "access to the cluster c has ended"
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    assert await wait(ended) == "access to the cluster c has ended"  # it does not begin again
