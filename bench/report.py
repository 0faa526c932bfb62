"""What a measure is and how its results are shown: one table with ours, the peer's, the ratio and the budget."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


class Broken(Exception):
    """The figures could not be taken; the text says what to do."""


@dataclass(frozen=True)
class Effort:
    rounds: int
    seconds: int  # of load per round


@dataclass(frozen=True)
class Budget:
    """What the ratio ours / peer has to be."""

    ratio: float
    more_is_better: bool

    def is_met(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.more_is_better else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'>=' if self.more_is_better else '<='} {self.ratio:g}x"


@dataclass(frozen=True)
class Sample:
    """One round: the figure, and the processor time (user and system, microseconds) of the server per request."""

    value: float
    cpu: float | None = None


@dataclass(frozen=True)
class Row:
    title: str
    unit: str
    budget: Budget
    ours: Sequence[Sample]
    peer: Sequence[Sample]


_COLUMNS = ("what", "ours", "peer", "ratio", "budget", "verdict", "CPU/request ours", "peer")


def table(rows: Sequence[Row]) -> str:
    return aligned([_COLUMNS, *(_cells(row) for row in rows)])


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """Lines of cells in columns, the first line being their titles."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    ours = median(sample.value for sample in row.ours)
    shown = f"{ours:.4g} {row.unit}"
    if not row.peer:
        return (row.title, shown, "", "", str(row.budget), "", _cpu(row.ours), "")
    peer = median(sample.value for sample in row.peer)
    ratio = ours / peer
    verdict = "met" if row.budget.is_met(ratio) else "MISSED"
    compared = (f"{peer:.4g} {row.unit}", f"{ratio:.2f}x", str(row.budget), verdict)
    return (row.title, shown, *compared, _cpu(row.ours), _cpu(row.peer))


def _cpu(samples: Sequence[Sample]) -> str:
    known = [sample.cpu for sample in samples if sample.cpu is not None]
    return f"{median(known):.0f} us" if known else ""


def circumstances() -> str:
    """What else decides the figures: processors, load by others, and what a sync of the disk costs."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{os.cpu_count()} processors, load average {load}, {_sync_milliseconds():.2f} ms per fdatasync"


def _sync_milliseconds(times: int = 100) -> float:
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(times * 4096))
        file.flush()
        os.fsync(file.fileno())
        started = time.perf_counter()
        for place in range(times):
            os.pwrite(file.fileno(), b"x" * 4096, place * 4096)
            os.fdatasync(file.fileno())
        return (time.perf_counter() - started) / times * 1000
