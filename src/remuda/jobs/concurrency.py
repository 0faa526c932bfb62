"""Concurrency limit for the programs of Jobs. Namespaces take turns; each namespace's Jobs run first in, first out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from remuda.kube.objects import Key


class ConcurrencyLimit:
    def __init__(self, most: int, wake: Callable[[Key], None]) -> None:
        """`wake` is called for each that has waited and whose turn has come."""
        self._most = most
        self._wake = wake
        self._holders: set[Key] = set()
        self._waiting: OrderedDict[str, OrderedDict[Key, None]] = OrderedDict()

    def ask(self, key: Key) -> bool:
        """Request a slot for the Job and return whether it has one. It stays queued until then, and keeps the slot
        until `give_back`."""
        if key in self._holders:
            return True
        self._waiting.setdefault(key.namespace, OrderedDict()).setdefault(key)
        self._hand_out(asking=key)
        return key in self._holders

    def give_back(self, key: Key) -> None:
        """Release the Job's slot, or remove it from the queue."""
        self._holders.discard(key)
        queue = self._waiting.get(key.namespace)
        if queue is not None:
            queue.pop(key, None)
            if not queue:
                del self._waiting[key.namespace]
        self._hand_out()

    @property
    def taken(self) -> int:
        return len(self._holders)

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _hand_out(self, asking: Key | None = None) -> None:
        while self._waiting and len(self._holders) < self._most:
            namespace, queue = next(iter(self._waiting.items()))
            key, _ = queue.popitem(last=False)
            self._waiting.move_to_end(namespace)
            if not queue:
                del self._waiting[namespace]
            self._holders.add(key)
            if key != asking:
                self._wake(key)
