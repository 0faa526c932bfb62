"""Fair queue: which waiting request runs next, when all of them share one event loop.

Every request belongs to a flow, which is one user. A flow's requests wait in the order in which they came. Free seats
go to the flow that has used the least so far. A request takes more seats the larger its body is, so that many small
requests run side by side and a huge one runs alone. When a request ends, its flow is charged the real cost, so a flow
of costly requests gets fewer turns (start-time fair queuing).

Pure: it has no clock and does no I/O. What must stay true:
- However many requests a flow has, another flow waits only for those that run, and then gets its turn.
- A flow cannot save up turns: one that begins to wait starts at the present position of the queue.
- A flow with nothing in progress takes no memory.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

T = TypeVar("T")


class _Flow(Generic[T]):
    __slots__ = ("bytes", "requests", "used", "waiting")

    def __init__(self) -> None:
        self.requests = 0  # in progress: receiving the body, waiting or running
        self.bytes = 0  # bytes of their bodies
        self.used = 0.0
        self.waiting: deque[tuple[int, T]] = deque()  # required seats, and the object to wake


class FairQueue(Generic[T]):
    """Queue of one priority level. Each flow may have `requests` with `size` bytes of bodies in progress."""

    def __init__(self, *, seats: int, requests: int, size: int) -> None:
        self._most_seats = self._free = seats
        self._most_requests = requests
        self._most_bytes = size
        self._flows: dict[str, _Flow[T]] = {}
        # Waiting flows, by their usage when they were pushed: `used` only grows, so an entry is outdated at worst. The
        # number orders equal entries.
        self._heap: list[tuple[float, int, str]] = []
        self._number = 0
        self._position = 0.0  # usage of the flow that was served last

    def enter(self, name: str, size: int) -> bool:
        """Count a request of a flow as in progress. Return False if the flow has too many; then do not call `leave`.

        A flow's first request is always accepted, whatever its size.
        """
        flow = self._flows.get(name)
        if flow is None:
            flow = self._flows[name] = _Flow()
        elif flow.requests >= self._most_requests or flow.bytes + size > self._most_bytes:
            return False
        flow.requests += 1
        flow.bytes += size
        return True

    def leave(self, name: str, size: int, cost: float) -> None:
        """Charge a flow for a finished request. Its seats are released separately."""
        flow = self._flows[name]
        flow.requests -= 1
        flow.bytes -= size
        flow.used += cost
        if not flow.requests:
            del self._flows[name]

    def take(self, name: str, seats: int) -> bool:
        """Take seats if they are free and no request waits. Otherwise return False: then call `wait`."""
        if self._heap or seats > self._free:
            return False
        flow = self._flows[name]
        self._position = flow.used = max(flow.used, self._position)
        self._free -= seats
        return True

    def wait(self, name: str, seats: int, request: T) -> None:
        """Append a request to the waiting requests of its flow."""
        flow = self._flows[name]
        if not flow.waiting:
            flow.used = max(flow.used, self._position)
            heappush(self._heap, (flow.used, self._next_number(), name))
        flow.waiting.append((seats, request))

    def withdraw(self, name: str, request: T) -> None:
        """Remove a request that no longer waits."""
        flow = self._flows[name]
        flow.waiting = deque(one for one in flow.waiting if one[1] is not request)
        if not flow.waiting:
            self._heap = sorted(entry for entry in self._heap if entry[2] != name)

    def release(self, seats: int) -> None:
        self._free += seats

    def next(self) -> tuple[int, T] | None:
        """Take seats for the next request, and return both. Return None if it must wait or no request waits.

        A request that needs more seats than are free blocks all others; otherwise it might never run.
        """
        while self._heap:
            used, _, name = self._heap[0]
            flow = self._flows[name]
            if used < flow.used:
                heapreplace(self._heap, (flow.used, self._next_number(), name))
                continue
            seats, request = flow.waiting[0]
            if seats > self._free:
                return None
            flow.waiting.popleft()
            self._position = max(self._position, used)
            if flow.waiting:
                heapreplace(self._heap, (used, self._next_number(), name))
            else:
                heappop(self._heap)
            self._free -= seats
            return seats, request
        return None

    def seats_for(self, size: int, bytes_per_seat: int) -> int:
        """Return how many seats a body of so many bytes needs: at least one, at most all."""
        return min(1 + size // bytes_per_seat, self._most_seats)

    def _next_number(self) -> int:
        self._number += 1
        return self._number
