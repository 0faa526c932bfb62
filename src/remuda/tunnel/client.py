"""The client: always either in a tunnel or on its way back into one, for as long as it lives.

What must stay true:
- It knows a set of URLs and a set of authorities and asks for both anew before each attempt: a manager that moves, or
  changes its certificate, strands nobody who was told before. The URL that worked last is tried first.
- Between rounds it waits up to a bound that doubles to `Waits.longest`, anything from nothing up to it, so that many
  clients do not come back at once. Where a server says when (Retry-After), it waits that and up to a second more. The
  bound starts over after a session that lasted.
- Why the last session ended, or the last attempt failed, is always known and told.
- With `TunnelSettings.wait_for`, it opens no tunnel before a service on its own host accepts connections, so that every
  client of the tunnel finds it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from remuda.tunnel import websocket_client
from remuda.tunnel.allow import NOTHING, Allow
from remuda.tunnel.local_readiness import WaitFor, missing
from remuda.tunnel.mux import Timing
from remuda.tunnel.session import Session
from remuda.tunnel.streams import Limits

CONFIRMS = ("X-Remuda-Tunnel", "confirms")
"""The header by which a server knows that this end tells when it has connected a stream."""


_LONGEST_ASKED = 300.0
_HELD_SECONDS = 1.0  # between two looks at what is waited for


class Waits(NamedTuple):
    """Seconds."""

    first: float = 0.5
    longest: float = 10.0
    healthy: float = 30.0  # a session that lasted so long was one
    attempt: float = 10.0  # each wait of an attempt


class TunnelSettings(NamedTuple):
    urls: tuple[str, ...]
    authorities: str = ""  # PEM, any number; none: those of the system
    headers: tuple[tuple[str, str], ...] = ()
    allow: Allow = NOTHING
    timing: Timing = Timing()
    limits: Limits = Limits()
    waits: Waits = Waits()
    wait_for: WaitFor | None = None


class Status(NamedTuple):
    connected_to: str  # empty: not connected
    since: float  # when that began, seconds since 1970
    last_disconnect_reason: str
    attempts: int  # since the last tunnel
    waiting_for: str = ""  # on this host, and why it is not there yet


class BackOff:
    """Back-off: the time to wait before the next round."""

    def __init__(self, waits: Waits, chance: Callable[[float, float], float] = random.uniform) -> None:
        self._waits = waits
        self._chance = chance
        self._bound = waits.first

    def reset(self) -> None:
        self._bound = self._waits.first

    def next(self, retry_after: float | None = None) -> float:
        if retry_after is not None:  # a server that says when is there, and says something else to everyone
            return min(retry_after, _LONGEST_ASKED) + self._chance(0.0, min(self._bound, 1.0))
        bound, self._bound = self._bound, min(self._bound * 2, self._waits.longest)
        return self._chance(0.0, bound)


class Client:
    """`settings` is asked before each round, and may raise ValueError or OSError, which is told and tried again. `told`
    hears of every change of status, in the thread that runs; `turned` is called every few seconds while all is well."""

    def __init__(
        self,
        settings: Callable[[], TunnelSettings],
        told: Callable[[Status], None] = lambda status: None,
        turned: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._told = told
        self._turned = turned
        self._stopped = threading.Event()
        self._session: Session | None = None
        self._last_url = ""
        self.status = Status("", time.time(), "", 0)

    def run(self) -> None:
        """Until `stop`."""
        back_off: BackOff | None = None
        while not self._stopped.is_set():
            retry_after: float | None = None
            try:
                settings = self._settings()
                back_off = back_off or BackOff(settings.waits)
                if not self._is_there(settings.wait_for):
                    self._pause(_HELD_SECONDS)
                    continue
                lasted, retry_after = self._round(settings)
                if lasted >= settings.waits.healthy:
                    back_off.reset()
            except (ValueError, OSError) as error:
                self._failed(str(error))
            back_off = back_off or BackOff(Waits())
            self._pause(back_off.next(retry_after))

    def stop(self) -> None:
        """From any other thread; `run` returns soon."""
        self._stopped.set()
        session = self._session
        if session is not None:
            session.stop("the client is stopping")

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
            self._turned()
            self._stopped.wait(min(left, 1.0))

    def _is_there(self, wanted: WaitFor | None) -> bool:
        """Return whether the local target of the tunnel is ready on this host; report it when it is not."""
        reason = missing(wanted, _HELD_SECONDS) if wanted is not None else ""
        if reason and reason != self.status.waiting_for:
            self._tell(self.status._replace(since=time.time(), waiting_for=reason))
        return not reason

    def _round(self, settings: TunnelSettings) -> tuple[float, float | None]:
        """Each URL once, until one has led to a session: how long that lasted, and how long to wait at least."""
        context = websocket_client.trust(settings.authorities)
        headers = (CONFIRMS, *settings.headers)
        asked_to_wait: list[float] = []
        for url in sorted(settings.urls, key=lambda url: url != self._last_url):
            if self._stopped.is_set():
                break
            self._turned()
            try:
                wire, rest = websocket_client.reach(url, context, headers, settings.waits.attempt)
            except websocket_client.Unreachable as error:
                self._failed(str(error))
                if error.retry_after is not None:
                    asked_to_wait.append(error.retry_after)
                continue
            return self._within(settings, url, wire, rest), None
        return 0.0, min(asked_to_wait, default=None)

    def _within(self, settings: TunnelSettings, url: str, wire: websocket_client.ssl.SSLSocket, rest: bytes) -> float:
        session = Session(
            wire,
            rest=rest,
            allow=settings.allow,
            timing=settings.timing,
            limits=settings.limits,
            turned=self._turned,
        )
        self._session = session
        if self._stopped.is_set():  # it may have been too early for `stop` to find the session
            session.stop("the client is stopping")
        self._last_url = url
        began = time.monotonic()
        self._tell(Status(url, time.time(), self.status.last_disconnect_reason, 0))
        try:
            reason = session.run()
        finally:
            self._session = None
        self._tell(Status("", time.time(), f"{url}: {reason}", 0))
        return time.monotonic() - began

    def _failed(self, reason: str) -> None:
        since = self.status.since if not self.status.connected_to else time.time()
        self._tell(Status("", since, reason, self.status.attempts + 1))

    def _tell(self, status: Status) -> None:
        self.status = status
        self._told(status)
