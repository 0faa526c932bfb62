"""What the simulated cloud can prove about those who used it: its journal was synced whenever something happened.

It outlives every process, and knows nothing of what the controllers believe.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from remuda.lab.simulator.cloud import JournalEntry, made_twice
from remuda.lab.simulator.file_cloud import JOURNAL
from remuda.lab.simulator.served import VIOLATIONS

_read = msgspec.json.Decoder(JournalEntry).decode


def complaints(cloud: Path, cluster: str, servers: int) -> list[str]:
    """About a cluster that is gone, and for which so many servers were to be made in its life."""
    journal = [entry for entry in map(_read, _lines(cloud / JOURNAL)) if entry.tag == cluster]
    made = [entry.name for entry in journal if entry.event == "create"]
    removed = {entry.name for entry in journal if entry.event == "remove"}
    found = [f"the server {name} was made twice" for name in made_twice(journal)]
    found += [f"the server {name} is left" for name in made if name not in removed]
    found += [line for line in _lines(cloud / "workloads" / VIOLATIONS) if line.startswith(f"{cluster}: ")]
    if len(made) != servers:
        found.append(f"{len(made)} servers were made where {servers} do: {', '.join(made)}")
    return found


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
