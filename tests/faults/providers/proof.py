"""What the simulated cloud's journal proves of those who used it. It was synced whenever something happened, outlives
every process, and knows nothing of what the controllers believe."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from remuda.providers.shared.drivers.simcloud import CloudEvent

_decode = msgspec.json.Decoder(CloudEvent).decode


def complaints(journal: Path, servers: int) -> list[str]:
    """About machines that are gone, for which so many servers were to be made."""
    entries = [_decode(line) for line in journal.read_bytes().splitlines()]
    made = Counter((entry.name, entry.uid) for entry in entries if entry.event == "made")
    removed = {(entry.name, entry.uid) for entry in entries if entry.event == "removed"}
    found = [f"the server {name} was made {times} times" for (name, _), times in made.items() if times > 1]
    found += [f"the server {name} is left" for name, uid in made if (name, uid) not in removed]
    if len(made) != servers:
        found.append(f"{len(made)} servers were made where {servers} do: {', '.join(name for name, _ in made)}")
    return found
