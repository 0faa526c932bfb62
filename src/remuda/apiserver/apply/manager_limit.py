"""The limit on how many updaters an object remembers.

Only entries of updates count; appliers are as many as they are. Past the limit the oldest entries of one API version
are joined into one of a manager that stands for all of them.
"""

from __future__ import annotations

from remuda.apiserver.apply.entries import MOST_UPDATERS, OLD_UPDATES, UPDATE, Entries, Entry, Key, identifier
from remuda.apiserver.apply.fieldset import union


def cap_updaters(entries: Entries) -> None:
    """Joins the oldest updates until no more than the allowed number are left."""
    if len(entries) <= MOST_UPDATERS:
        return
    updaters = [key for key, entry in entries.items() if entry.operation == UPDATE]
    surplus = len(updaters) - MOST_UPDATERS
    updaters.sort(key=lambda key: (entries[key].time, identifier(key)))
    oldest: dict[str, Key] = {}
    for key in updaters:
        if surplus <= 0:
            return
        version = entries[key].api_version
        if version not in oldest:
            oldest[version] = key
            continue
        _join(entries, oldest[version], entries.pop(key))
        surplus -= 1


def _join(entries: Entries, first: Key, joining: Entry) -> None:
    bucket = Entry(OLD_UPDATES, UPDATE, joining.api_version, "", joining.time, joining.fields)
    present = entries.get(bucket.key) or entries.pop(first)
    bucket.fields = union(joining.fields, present.fields)
    entries[bucket.key] = bucket
