"""All duties of upkeep, driven by one store listener."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from remuda.apiserver.auth.jws import Signer
from remuda.apiserver.registry.registry import Registry
from remuda.apiserver.storage.types import StoreEvent
from remuda.apiserver.upkeep.aggregation import AggregationDuty
from remuda.apiserver.upkeep.definitions import DefinitionsDuty
from remuda.apiserver.upkeep.duty import KeyedDuty, UpkeepTask
from remuda.apiserver.upkeep.expiry import ExpiryDuty
from remuda.apiserver.upkeep.garbage import GarbageDuty
from remuda.apiserver.upkeep.namespaces import NamespacesDuty
from remuda.apiserver.upkeep.quotas import QuotasDuty
from remuda.apiserver.upkeep.serviceaccounts import ServiceAccountsDuty


class Upkeep:
    """All duties. `controllers` are those that kube-controller-manager can do instead; definitions and expiry always
    run.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        signer: Signer,
        ca: bytes,
        event_ttl: timedelta = timedelta(hours=1),
        controllers: bool = True,
    ) -> None:
        self._store = registry.store
        self._duties: list[UpkeepTask] = [DefinitionsDuty(registry), ExpiryDuty(registry, event_ttl)]
        if controllers:
            self._duties += [
                GarbageDuty(registry),
                NamespacesDuty(registry),
                ServiceAccountsDuty(registry, signer, ca),
                AggregationDuty(registry),
                QuotasDuty(registry),
            ]
        self._unsubscribe: Callable[[], None] | None = None

    async def start(self) -> None:
        """Subscribe first, then scan: a change during the scan is seen twice, never missed."""
        self._unsubscribe = self._store.subscribe(self._observe)
        for duty in self._duties:
            await duty.start()

    def _observe(self, events: Sequence[StoreEvent]) -> None:
        for duty in self._duties:
            duty.observe(events)

    @property
    def is_idle(self) -> bool:
        """Return whether no work is running or waiting for a retry."""
        return all(duty.worker.is_idle for duty in self._duties if isinstance(duty, KeyedDuty))

    async def close(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
        for duty in self._duties:
            await duty.close()
