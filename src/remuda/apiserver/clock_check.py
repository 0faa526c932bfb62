"""Startup check of the clock and the certificate authority, on which certificates, tokens, leases and timeouts depend.

A failed check does not stop the server: with a wrong clock or an expired authority it is of little use, but it can
report the cause.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from remuda.apiserver.storage.protocol import Store
from remuda.apiserver.storage.types import StoreEntry
from remuda.apiserver.upkeep.expiry import last_written

_TOLERATED = timedelta(hours=1)  # how far the clock may be behind the newest write
_LONG = timedelta(days=365)  # how long a server may have been stopped
_LOOKED_AT = 20  # objects with the newest revisions that are read


def complaints(now: datetime, valid_from: datetime, valid_to: datetime, newest: datetime | None, ca: Path) -> list[str]:
    """Return warnings. `valid_from` and `valid_to` are those of the certificate authority in the file `ca`; `newest` is
    the time of the latest write.
    """
    set_clock = f"the clock of this machine says {_shown(now)}: set it if that is wrong, and start again"
    renew = (
        f"If it is right, remove {ca} (not its key) and start again: the server creates a new certificate for the same "
        "authority. Hosts and kubeconfigs need the new one"
    )
    found = []
    if now < valid_from:
        found.append(f"{ca} is not valid before {_shown(valid_from)}, so no client trusts it; {set_clock}. {renew}")
    elif now >= valid_to:
        found.append(f"{ca} expired on {_shown(valid_to)}, so no client trusts it; {set_clock}. {renew}")
    if newest is None:
        return found
    if newest - now > _TOLERATED:
        found.append(f"an object was written on {_shown(newest)}, which is in the future; {set_clock}")
    elif now - newest > _LONG:
        found.append(
            f"the newest object was written on {_shown(newest)}, {(now - newest).days} days ago; {set_clock}. With a "
            "clock that is ahead, tokens and time limits end at once"
        )
    return found


def newest_write(store: Store) -> datetime | None:
    """Return the latest write time recorded in the newest objects; None if there is none or it cannot be parsed."""
    times = [last_written(entry) for entry in heapq.nlargest(_LOOKED_AT, _entries(store), key=lambda e: e.revision)]
    latest = max(filter(None, times), default="")
    try:
        return datetime.fromisoformat(latest) if latest else None
    except ValueError:
        return None


def _entries(store: Store) -> Iterator[StoreEntry]:
    for table in store.tables():
        yield from store.intact(table)


def _shown(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
