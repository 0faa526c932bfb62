"""The manager: one client, its caches, the controllers that use them, and their common shutdown.

Caches fill whether or not this process leads, so that a new leader starts with full caches. Controllers run only while
it leads. `run` returns on shutdown, or raises when leadership is lost; then no task is left running.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

from remuda.kube.client import Client, Target
from remuda.kube.leadership import permit
from remuda.kube.objects import Key, Kind
from remuda.runtime.caches import Caches
from remuda.runtime.caching_client import CachingClient
from remuda.runtime.controller import INTERVAL_SECONDS, Controller, Reconcile
from remuda.runtime.election import Election, LeadershipLost
from remuda.runtime.events import Events
from remuda.runtime.informer import Informer
from remuda.runtime.ledger import Ledger
from remuda.runtime.metrics import Metrics
from remuda.runtime.outcome import Outcome
from remuda.runtime.reconcile_context import current
from remuda.runtime.steps import note_write
from remuda.runtime.tasks import Stopped, Tasks, ended, unless

log = logging.getLogger(__name__)

_GRACE_SECONDS = 10.0


class Manager:
    def __init__(
        self,
        client: Client,
        *,
        namespace: str = "",
        name: str = "remuda",
        metrics: Metrics | None = None,
        interval: float | None = None,
    ) -> None:
        """`interval` overrides every delay that batches changes of a key; for tests."""
        self.name = name
        self.namespace = namespace
        self._interval = interval
        self.metrics = metrics or Metrics()
        self.ledger = Ledger(self.metrics)
        self.caches = Caches(client, namespace=namespace)
        self.client: Client = CachingClient(client, self.caches, self._written)
        self.events = Events(self.client, component=name)
        self.controllers: dict[str, Controller] = {}
        self.tasks = Tasks()
        self._permit: Callable[[], None] | None = None
        self._leads = False
        self._starting: list[Callable[[], Awaitable[None]]] = []
        self._leading: list[Callable[[], None]] = []
        self._closing: list[Callable[[], Awaitable[None]]] = []

    def settling(self, seconds: float) -> float:
        """Return how long a controller of this manager may wait to batch changes, capped by the manager's interval."""
        return seconds if self._interval is None else min(seconds, self._interval)

    def at_start(self, begin: Callable[[], Awaitable[None]]) -> None:
        """Register a function to await when the caches are filled, whether or not this process leads."""
        self._starting.append(begin)

    def at_lead(self, tell: Callable[[], None]) -> None:
        """Register a function to call when the controllers start."""
        self._leading.append(tell)

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """Register a function to await when the controllers have stopped."""
        self._closing.append(close)

    def controller(
        self,
        name: str,
        kind: Kind[Any],
        reconcile: Reconcile,
        *,
        concurrency: int = 10,
        interval: float = INTERVAL_SECONDS,
        informer: Informer[Any] | None = None,
    ) -> Controller:
        """Add a controller of every object of `kind`, or of those in one cache; watch more with `Controller.watch`.
        If the other controllers run already, it starts at once."""
        if name in self.controllers:
            raise ValueError(f"two controllers are called {name}")
        controller = Controller(
            name,
            kind,
            self._permitted(reconcile),
            concurrency=concurrency,
            interval=interval if self._interval is None else self._interval,
            longest_settling=self.settling(math.inf),
            metrics=self.metrics,
            ledger=self.ledger,
        )
        controller.watch(self.caches.of(kind) if informer is None else informer, lambda obj: (obj.key,))
        self.controllers[name] = controller
        if self._leads:
            controller.start()
        return controller

    async def end_controller(self, name: str) -> None:
        """Stop a controller whose kind was deleted or is no longer ours. The cache stays."""
        controller = self.controllers.pop(name, None)
        if controller is not None:
            await controller.stop(_GRACE_SECONDS)

    def _permitted(self, reconcile: Reconcile) -> Reconcile:
        """Wrap a reconcile function so that its steps check the Lease, if there is one."""

        async def run(key: Key) -> Outcome:
            # Set in each run, because each run is a task with its own context; steps and writes then read it there.
            permit.set(self._permit)
            return await reconcile(key)

        return run

    def _written(self, verb: str, target: Target, namespace: str, name: str, subresource: str) -> None:
        self.ledger.wrote(current.get(), verb, target, namespace, name, subresource)
        note_write(verb, target.plural, namespace, name, subresource)

    async def run(self, stop: asyncio.Event, election: Election | None = None) -> None:
        """Run the controllers while this process leads, until `stop`. Raises LeadershipLost if the Lease is lost. No
        task is left running either way."""
        try:
            await unless(stop, self.start(), "start")
            if election is None:
                self.lead()
                await stop.wait()
            else:
                await self._campaign(stop, election)
        except Stopped:
            pass
        finally:
            await self.stop()

    async def _campaign(self, stop: asyncio.Event, election: Election) -> None:
        try:
            await unless(stop, election.campaign(), "campaign")
        except Stopped:
            pass
        else:
            await self._lead_while(stop, election)
        # Only after all reconciles have ended. LeadershipLost skips this: the Lease may belong to another replica.
        await election.resign()

    async def _lead_while(self, stop: asyncio.Event, election: Election) -> None:
        """Hold the Lease until the last reconcile has finished; if it is lost, stop all reconciles at once."""
        self._permit = election.permit
        self.lead()
        self.metrics.leads(self.name, True)
        held = self.tasks.spawn("hold the lease", election.hold())
        stopped = self.tasks.spawn("stop gracefully", self._stop_gracefully(stop))
        try:
            await asyncio.wait((held, stopped), return_when=asyncio.FIRST_COMPLETED)
            if held.done():
                # Without grace: another replica may lead already, so no reconcile may write any more.
                await ended(stopped)
                await self._end_controllers(0.0)
                raise LeadershipLost(held.result())
            await ended(held)
        finally:
            self.metrics.leads(self.name, False)

    async def _stop_gracefully(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await self._end_controllers(_GRACE_SECONDS)

    async def start(self) -> None:
        """Fill the caches first, so that controllers start with complete data."""
        await self.caches.start()
        self.events.start()
        for begin in self._starting:
            await begin()

    def lead(self) -> None:
        self._leads = True
        for controller in self.controllers.values():
            controller.start()
        log.info("%s runs the controllers %s", self.name, ", ".join(self.controllers))
        for tell in self._leading:
            tell()

    @property
    def idle(self) -> bool:
        """Nothing to do until something happens or a timer fires."""
        return all(controller.idle for controller in self.controllers.values())

    async def stop(self) -> None:
        await self._end_controllers(_GRACE_SECONDS)
        for close in self._closing:
            await close()
        # Events and caches last: what ends above still records events and reads caches.
        await self.tasks.close()
        await self.events.close()
        await self.caches.close()

    async def _end_controllers(self, seconds: float) -> None:
        self._leads = False
        await asyncio.gather(*(controller.stop(seconds) for controller in self.controllers.values()))
