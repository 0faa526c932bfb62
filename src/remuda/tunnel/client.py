"""Tunnel client: keeps one tunnel to the manager open, and reconnects until it is stopped.

What must stay true:
- It reads its URLs and certificate authorities again before each attempt, so that a manager can move or change its
  certificate if the new settings were delivered before. The URL that worked last is tried first.
- Between rounds it waits a random time below a bound that doubles up to `ReconnectDelays.longest`, so that many clients
  do not reconnect at once. If the server sends Retry-After, the client waits that long and up to a second more. A
  session that lasted resets the bound.
- The status always has the reason why the last session ended or the last attempt failed.
- With `TunnelSettings.wait_for`, it opens no tunnel before a service on its own host is ready, so that the tunnel never
  leads nowhere.
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
from remuda.tunnel.streams import StreamLimits

CONFIRMS = ("X-Remuda-Tunnel", "confirms")
"""Header that tells the server that this client confirms each stream it has connected."""


_MAX_RETRY_AFTER = 300.0
_LOCAL_CHECK_SECONDS = 1.0  # between two checks of the local service


class ReconnectDelays(NamedTuple):
    """Seconds."""

    first: float = 0.5
    longest: float = 10.0
    healthy: float = 30.0  # a session that lasted this long resets the back-off
    attempt: float = 10.0  # limit of one connection attempt


class TunnelSettings(NamedTuple):
    urls: tuple[str, ...]
    authorities: str = ""  # PEM, any number; empty: those of the system
    headers: tuple[tuple[str, str], ...] = ()
    allow: Allow = NOTHING
    timing: Timing = Timing()
    limits: StreamLimits = StreamLimits()
    waits: ReconnectDelays = ReconnectDelays()
    wait_for: WaitFor | None = None


class Status(NamedTuple):
    connected_to: str  # empty: not connected
    since: float  # when that began, seconds since 1970
    last_disconnect_reason: str
    attempts: int  # since the last tunnel
    waiting_for: str = ""  # local service that is not ready yet, and the reason


class BackOff:
    """Back-off: the time to wait before the next round."""

    def __init__(self, waits: ReconnectDelays, chance: Callable[[float, float], float] = random.uniform) -> None:
        self._waits = waits
        self._chance = chance
        self._bound = waits.first

    def reset(self) -> None:
        self._bound = self._waits.first

    def next(self, retry_after: float | None = None) -> float:
        if retry_after is not None:  # the server works, and spreads its clients itself
            return min(retry_after, _MAX_RETRY_AFTER) + self._chance(0.0, min(self._bound, 1.0))
        bound, self._bound = self._bound, min(self._bound * 2, self._waits.longest)
        return self._chance(0.0, bound)


class TunnelClient:
    """Tunnel client.

    `settings` is called before each round; if it raises ValueError or OSError, the error goes into the status and the
    client retries. `on_status` is called with every change of status, in the thread that runs the client. `on_tick` is
    called every few seconds while the client is alive.
    """

    def __init__(
        self,
        settings: Callable[[], TunnelSettings],
        on_status: Callable[[Status], None] = lambda status: None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._on_status = on_status
        self._on_tick = on_tick
        self._stopped = threading.Event()
        self._session: Session | None = None
        self._last_url = ""
        self.status = Status("", time.time(), "", 0)

    def run(self) -> None:
        """Run until `stop` is called."""
        back_off: BackOff | None = None
        while not self._stopped.is_set():
            retry_after: float | None = None
            try:
                settings = self._settings()
                back_off = back_off or BackOff(settings.waits)
                if not self._local_target_ready(settings.wait_for):
                    # The manager did not fail, so the back-off stays as it is.
                    self._pause(_LOCAL_CHECK_SECONDS)
                    continue
                lasted, retry_after = self._try_urls(settings)
                if lasted >= settings.waits.healthy:
                    back_off.reset()
            except (ValueError, OSError) as error:
                self._failed(str(error))
            back_off = back_off or BackOff(ReconnectDelays())
            self._pause(back_off.next(retry_after))

    def stop(self) -> None:
        """Make `run` return soon; called from any other thread."""
        self._stopped.set()
        session = self._session
        if session is not None:
            session.stop("the client is stopping")

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
            self._on_tick()
            self._stopped.wait(min(left, 1.0))

    def _local_target_ready(self, wanted: WaitFor | None) -> bool:
        """Return whether the local target of the tunnel is ready on this host; report it when it is not."""
        reason = missing(wanted, _LOCAL_CHECK_SECONDS) if wanted is not None else ""
        if reason and reason != self.status.waiting_for:
            self._set_status(self.status._replace(since=time.time(), waiting_for=reason))
        return not reason

    def _try_urls(self, settings: TunnelSettings) -> tuple[float, float | None]:
        """Try each URL once, until one leads to a session. Return how long that lasted, and the least time to wait."""
        context = websocket_client.trust(settings.authorities)
        headers = (CONFIRMS, *settings.headers)
        asked_to_wait: list[float] = []
        for url in sorted(settings.urls, key=lambda url: url != self._last_url):
            if self._stopped.is_set():
                break
            self._on_tick()
            try:
                wire, rest = websocket_client.reach(url, context, headers, settings.waits.attempt)
            except websocket_client.TunnelUnreachable as error:
                self._failed(str(error))
                if error.retry_after is not None:
                    asked_to_wait.append(error.retry_after)
                continue
            return self._run_session(settings, url, wire, rest), None
        return 0.0, min(asked_to_wait, default=None)

    def _run_session(
        self, settings: TunnelSettings, url: str, wire: websocket_client.ssl.SSLSocket, rest: bytes
    ) -> float:
        session = Session(
            wire,
            rest=rest,
            allow=settings.allow,
            timing=settings.timing,
            limits=settings.limits,
            on_tick=self._on_tick,
        )
        self._session = session
        if self._stopped.is_set():  # `stop` may have been called before `_session` was set
            session.stop("the client is stopping")
        self._last_url = url
        began = time.monotonic()
        self._set_status(Status(url, time.time(), self.status.last_disconnect_reason, 0))
        try:
            reason = session.run()
        finally:
            self._session = None
        self._set_status(Status("", time.time(), f"{url}: {reason}", 0))
        return time.monotonic() - began

    def _failed(self, reason: str) -> None:
        since = self.status.since if not self.status.connected_to else time.time()
        self._set_status(Status("", since, reason, self.status.attempts + 1))

    def _set_status(self, status: Status) -> None:
        self.status = status
        self._on_status(status)
