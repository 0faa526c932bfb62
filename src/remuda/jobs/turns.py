"""Who may run a program next: so many at a time; namespaces take turns, and within one whoever came first is first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from remuda.kube.objects import Key


class Turns:
    def __init__(self, most: int, wake: Callable[[Key], None]) -> None:
        """`wake` is called for each that has waited and whose turn has come."""
        self._most = most
        self._wake = wake
        self._holders: set[Key] = set()
        self._waiting: OrderedDict[str, OrderedDict[Key, None]] = OrderedDict()

    def ask(self, key: Key) -> bool:
        """Whether it is its turn. It keeps its place until it is, and its turn until `give_back`."""
        if key in self._holders:
            return True
        self._waiting.setdefault(key.namespace, OrderedDict()).setdefault(key)
        self._hand_out(asking=key)
        return key in self._holders

    def give_back(self, key: Key) -> None:
        """Its turn, or its place among those who wait."""
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
