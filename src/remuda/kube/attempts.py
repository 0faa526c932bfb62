"""Rate limit for failures: one token bucket per address, refilled over time.

For invalid tokens the limit protects the server, not the secret, which is too long to be guessed; for log lines it
protects the disk. The limit is therefore generous: many hosts behind one address do not lock each other out because one
of them keeps retrying with a wrong token.
"""

from __future__ import annotations

import math

_BURST = 30.0
_PER_SECOND = 1.0
_ENOUGH = 0.999  # not 1: rounding errors must not refuse a client that has waited as long as requested
_ADDRESSES = 10_000  # limit of remembered addresses; the one that was seen longest ago is forgotten first


class AttemptLimiter:
    def __init__(self, *, burst: float = _BURST, per_second: float = _PER_SECOND, addresses: int = _ADDRESSES) -> None:
        self._burst = burst
        self._per_second = per_second
        self._addresses = addresses
        self._left: dict[str, tuple[float, float]] = {}  # tokens left, and the time of that count

    def wait(self, address: str, now: float) -> int:
        """Return the seconds until this address may try again; 0: now."""
        left = self._now(address, now)
        return 0 if left > _ENOUGH else math.ceil((1 - left) / self._per_second)

    def failed(self, address: str, now: float) -> None:
        left = self._now(address, now)
        self._left.pop(address, None)
        while len(self._left) >= self._addresses:
            del self._left[next(iter(self._left))]
        self._left[address] = (max(left - 1, 0.0), now)

    def _now(self, address: str, now: float) -> float:
        left, then = self._left.get(address, (self._burst, now))
        return min(left + (now - then) * self._per_second, self._burst)
