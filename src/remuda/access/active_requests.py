"""Long-running requests at the proxy (watches, logs, exec and the like), ended when their caller loses access.

The proxy authorizes a request when it begins. A long-running one is authorized again when something that it depends on
changes: its token, the token's user, the rules of the management plane; and when its token expires. Nothing is polled,
and while no request lasts, nothing is checked.

What must stay true:
- A call is registered before it is authorized: a permission that is revoked meanwhile is not missed.
- Ended calls differ from lost connections: the caller is told that access has ended, the audit line says why.
- A call that cannot be authorized now is retried soon, and continues until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from remuda.access.interfaces import Caller, MayReach
from remuda.access.tokens import Tokens
from remuda.access.types import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, TOKEN, USER
from remuda.kube import clock
from remuda.kube.errors import Forbidden, StatusError, Unauthorized
from remuda.kube.objects import Object
from remuda.runtime.caches import Caches
from remuda.runtime.tasks import Tasks

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 3.0  # a Kubernetes may tell of a rule that is gone moments before it goes by that itself
_SOON_SECONDS = 0.05  # many rules may go at once; and what expires now is expired then


class Call:
    """One request under way (`with`). `lasting`: it may outlive its caller's token. `why`: it was ended; in words for
    the audit line."""

    def __init__(self, underway: ActiveRequests, caller: Caller, cluster: str, lasting: bool) -> None:
        self.caller = caller
        self.cluster = cluster
        self.lasting = lasting
        self.why = ""
        self._underway = underway
        self._end: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._underway.calls[self] = None
        return self

    def __exit__(self, *what: object) -> None:
        self._underway.calls.pop(self, None)
        self.mind(None)

    def end(self, why: str) -> None:
        if not self.why:
            self.why = why
            if self._end is not None:
                self._end()

    def when_ended(self, act: Callable[[], object]) -> None:
        """At once, if that has come already."""
        self._end = act
        if self.why:
            act()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Cancel the body of the context when the call is ended, and raise the error for the caller."""
        task = asyncio.current_task()
        assert task is not None
        if self.why:
            raise self.refusal()
        self._end = task.cancel
        try:
            yield
        except asyncio.CancelledError:
            if self.why and task.uncancel() == 0:
                raise self.refusal() from None
            raise
        finally:
            self._end = None

    def refusal(self) -> StatusError:
        return StatusError(403, "Forbidden", f"access to the cluster {self.cluster} has ended")

    def mind(self, expires: float | None) -> None:
        """Check the call again when its token expires (wall time)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if expires is not None:
            seconds = max(expires - clock.time(), 0.0) + _SOON_SECONDS
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._underway.look_again, lambda call: call is self)


class ActiveRequests:
    """`still`: as may_reach, for somebody who was known before; `expires`: when that ceases by itself (wall time)."""

    def __init__(self, still: MayReach, expires: Callable[[Caller], float | None] = lambda caller: None) -> None:
        self.calls: dict[Call, None] = {}
        self._still = still
        self._expires = expires
        self._tasks = Tasks()
        self._due: set[Call] = set()
        self._judging = False

    def begin(self, caller: Caller, cluster: str, *, lasting: bool) -> Call:
        call = Call(self, caller, cluster, lasting)
        if lasting:
            call.mind(self._expires(caller))
        return call

    def look_again(self, concerned: Callable[[Call], bool], *, twice: bool = False) -> None:
        found = {call for call in self.calls if not call.why and concerned(call)}
        if not found:
            return
        self._due |= found
        if not self._judging:
            self._judging = True
            self._tasks.spawn("re-authorize active requests", self._judge_due())
        if twice:
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.look_again, found.__contains__)

    async def close(self) -> None:
        await self._tasks.close()

    async def _judge_due(self) -> None:
        try:
            while self._due:
                await asyncio.sleep(_SOON_SECONDS)
                due, self._due = self._due, set()
                await self._judge([call for call in due if call in self.calls])
        finally:
            self._judging = False

    async def _judge(self, calls: list[Call]) -> None:
        said: dict[tuple[str, str, str], str] = {}
        for call in calls:
            who = (call.caller.name, call.caller.token, call.cluster)
            try:
                if who not in said:
                    said[who] = await self._why_not(call)
            except Exception as error:  # whoever decides does not answer
                log.warning(
                    "cannot check the access of %s to cluster %s again: %s; retrying",
                    call.caller.name,
                    call.cluster,
                    error,
                )
                asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.look_again, {call}.__contains__)
                continue
            if said[who]:
                call.end(said[who])
            elif call.lasting and call in self.calls:
                call.mind(self._expires(call.caller))

    async def _why_not(self, call: Call) -> str:
        try:
            return await self._still(call.caller, call.cluster)
        except (Unauthorized, Forbidden) as error:
            return str(error.__cause__ or error)


def still_reaching(tokens: Tokens, may_reach: MayReach) -> MayReach:
    """Return a check whether a caller may still reach a cluster, with the current state of its token."""

    async def still(caller: Caller, cluster: str) -> str:
        return await may_reach(tokens.again(caller.token) if caller.token else caller, cluster)

    return still


def end_what_is_taken_back(underway: ActiveRequests, caches: Caches) -> None:
    """Has calls looked at again when a token, a user or a rule is another."""

    def token_changed(before: Object | None, after: Object | None, initial: bool) -> None:
        if before is not None:
            underway.look_again(lambda call: call.caller.token == before.metadata.name)

    def user_changed(before: Object | None, after: Object | None, initial: bool) -> None:
        if before is not None:
            underway.look_again(lambda call: call.caller.name == before.metadata.name)

    def rule_changed(before: Object | None, after: Object | None, initial: bool) -> None:
        if before is not None:  # a rule that came takes nothing away
            underway.look_again(lambda call: True, twice=True)

    caches.of(TOKEN).listen(token_changed)
    caches.of(USER).listen(user_changed)
    for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING):
        caches.of(kind, metadata_only=True).listen(rule_changed)
