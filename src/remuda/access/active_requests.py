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

_AGAIN_SECONDS = 3.0  # a watch may report a deleted rule moments before the API server stops applying it
_SOON_SECONDS = 0.05  # groups changes of many rules, and lets a token that expires now be expired


class ActiveRequest:
    """One active request (`with`). `lasting`: it may outlive its caller's token. `why`: the reason why it was ended,
    for the audit line."""

    def __init__(self, active_requests: ActiveRequests, caller: Caller, cluster: str, lasting: bool) -> None:
        self.caller = caller
        self.cluster = cluster
        self.lasting = lasting
        self.why = ""
        self._active = active_requests
        self._end: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._active.calls[self] = None
        return self

    def __exit__(self, *what: object) -> None:
        self._active.calls.pop(self, None)
        self.schedule_check(None)

    def end(self, why: str) -> None:
        if not self.why:
            self.why = why
            if self._end is not None:
                self._end()

    def when_ended(self, act: Callable[[], object]) -> None:
        """Call `act` when the call is ended, or at once if it already was."""
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
            # The task may also have been cancelled by its client or a stopping server. That cancellation must not be
            # swallowed.
            if self.why and task.uncancel() == 0:
                raise self.refusal() from None
            raise
        finally:
            self._end = None

    def refusal(self) -> StatusError:
        return StatusError(403, "Forbidden", f"access to the cluster {self.cluster} has ended")

    def schedule_check(self, expires: float | None) -> None:
        """Check the call again when its token expires (wall time)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if expires is not None:
            seconds = max(expires - clock.time(), 0.0) + _SOON_SECONDS
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._active.recheck, lambda call: call is self)


class ActiveRequests:
    """Active requests. `still`: checks a known caller again; `expires`: when its token expires (wall time)."""

    def __init__(self, still: MayReach, expires: Callable[[Caller], float | None] = lambda caller: None) -> None:
        self.calls: dict[ActiveRequest, None] = {}
        self._still = still
        self._expires = expires
        self._tasks = Tasks()
        self._due: set[ActiveRequest] = set()
        self._checking = False

    def begin(self, caller: Caller, cluster: str, *, lasting: bool) -> ActiveRequest:
        call = ActiveRequest(self, caller, cluster, lasting)
        if lasting:
            call.schedule_check(self._expires(caller))
        return call

    def recheck(self, concerned: Callable[[ActiveRequest], bool], *, twice: bool = False) -> None:
        found = {call for call in self.calls if not call.why and concerned(call)}
        if not found:
            return
        self._due |= found
        if not self._checking:
            self._checking = True
            self._tasks.spawn("re-authorize active requests", self._check_due())
        if twice:
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.recheck, found.__contains__)

    async def close(self) -> None:
        await self._tasks.close()

    async def _check_due(self) -> None:
        try:
            while self._due:
                await asyncio.sleep(_SOON_SECONDS)
                due, self._due = self._due, set()
                await self._check([call for call in due if call in self.calls])
        finally:
            self._checking = False

    async def _check(self, calls: list[ActiveRequest]) -> None:
        reasons: dict[tuple[str, str, str], str] = {}
        for call in calls:
            who = (call.caller.name, call.caller.token, call.cluster)
            try:
                # A client often has many watches of one cluster: ask the authorizer once for all of them.
                if who not in reasons:
                    reasons[who] = await self._why_not(call)
            except Exception as error:  # the authorizer does not answer
                log.warning(
                    "cannot recheck the access of %s to cluster %s: %s; retrying",
                    call.caller.name,
                    call.cluster,
                    error,
                )
                asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.recheck, {call}.__contains__)
                continue
            if reasons[who]:
                call.end(reasons[who])
            # The change may have been a new time of expiry of the token.
            elif call.lasting and call in self.calls:
                call.schedule_check(self._expires(call.caller))

    async def _why_not(self, call: ActiveRequest) -> str:
        try:
            return await self._still(call.caller, call.cluster)
        except (Unauthorized, Forbidden) as error:
            return str(error.__cause__ or error)


def still_reaching(tokens: Tokens, may_reach: MayReach) -> MayReach:
    """Return a check whether a caller may still reach a cluster, with the current state of its token."""

    async def still(caller: Caller, cluster: str) -> str:
        return await may_reach(tokens.again(caller.token) if caller.token else caller, cluster)

    return still


def end_revoked_requests(active_requests: ActiveRequests, caches: Caches) -> None:
    """Check calls again when a token, a user or an RBAC rule changes."""

    def token_changed(before: Object | None, after: Object | None, initial: bool) -> None:
        if before is not None:
            active_requests.recheck(lambda call: call.caller.token == before.metadata.name)

    def user_changed(before: Object | None, after: Object | None, initial: bool) -> None:
        if before is not None:
            active_requests.recheck(lambda call: call.caller.name == before.metadata.name)

    def rule_changed(before: Object | None, after: Object | None, initial: bool) -> None:
        if before is not None:  # a new rule revokes nothing
            active_requests.recheck(lambda call: True, twice=True)

    caches.of(TOKEN).listen(token_changed)
    caches.of(USER).listen(user_changed)
    for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING):
        caches.of(kind, metadata_only=True).listen(rule_changed)
