"""Both servers, one after the other, each asked the same; then the table.

A server lives once for all measures, except that readiness is measured by starting it anew. Memory comes first, while
nothing but the objects it is about has been written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.apiserver import fanout, objects, wrk
from bench.apiserver.subject import Subject, installed, start_ours, start_peer
from bench.apiserver.wrk import Load
from bench.report import Budget, Effort, Row, Sample, circumstances, table

_FILLED = 10_000
_LISTED = 500
_MORE, _LESS = True, False

Take = Callable[[Subject, int], Sample]  # (server, seconds) -> one round


@dataclass(frozen=True)
class Measure:
    name: str
    title: str
    unit: str
    budget: Budget
    take: Take


def _ready(subject: Subject, seconds: int) -> Sample:
    return Sample(subject.ready_after)


def _memory(subject: Subject, seconds: int) -> Sample:
    return Sample(subject.resident_megabytes())


def _rate(load: Load) -> Take:
    return lambda subject, seconds: wrk.requests_per_second(subject, load, seconds)


def _list(query: str) -> Load:
    return Load("GET", objects.collection("listed") + query, connections=4)


_CREATE = objects.wagon("new-@K@")
_ONE = f"{objects.collection('listed')}/listed-@N@"
_PATCH = Load(
    "PATCH", f"{_ONE}/status", objects.status_patch("@K@"), content_type="application/merge-patch+json", cycle=_LISTED
)

_CREATE_ONE = Load("POST", objects.collection("created"), _CREATE, connections=1)
_CREATE_MANY = Load("POST", objects.collection("created"), _CREATE)

MEASURES = (
    Measure("ready", "ready from cold", "s", Budget(1 / 4, _LESS), _ready),
    Measure("memory-idle", "memory, idle", "MB", Budget(1 / 5, _LESS), _memory),
    Measure("memory-10k", "memory, 10,000 objects of 2 KB", "MB", Budget(1 / 5, _LESS), _memory),
    Measure("create-16", "create, 16 connections", "/s", Budget(3, _MORE), _rate(_CREATE_MANY)),
    Measure("create-1", "create, 1 connection", "/s", Budget(3, _MORE), _rate(_CREATE_ONE)),
    Measure("get", "get one, 16 connections", "/s", Budget(4, _MORE), _rate(Load("GET", _ONE, cycle=_LISTED))),
    Measure("patch-status", "status merge-patch, 16 connections", "/s", Budget(4, _MORE), _rate(_PATCH)),
    Measure("list", "list of 500", "/s", Budget(3, _MORE), _rate(_list(""))),
    Measure(
        "list-cached", "list of 500, resourceVersion=0", "/s", Budget(3, _MORE), _rate(_list("?resourceVersion=0"))
    ),
    Measure("watch", "watch, 100 watchers, 100 writes/s, p99", "ms", Budget(1, _LESS), fanout.p99_milliseconds),
)

Samples = dict[str, list[Sample]]


def names() -> list[str]:
    return [measure.name for measure in MEASURES]


def run(wanted: Sequence[str], effort: Effort, *, with_peer: bool) -> str:
    wrk.require_wrk()
    print(f"{circumstances()}; median of {effort.rounds}", flush=True)
    with installed():
        ours = _of_server(start_ours, wanted, effort)
    peer = _of_server(start_peer, wanted, effort) if with_peer else {}
    print(f"{circumstances()}\n", flush=True)
    return table(
        [Row(m.title, m.unit, m.budget, ours[m.name], peer.get(m.name, [])) for m in MEASURES if m.name in wanted]
    )


def _of_server(start: Callable[[], Subject], wanted: Sequence[str], effort: Effort) -> Samples:
    samples: Samples = {name: [] for name in wanted}
    subject = _started(start, samples, effort)
    print(f"\n{subject.command}\n", flush=True)
    try:
        _memory_rounds(subject, samples)
        _set_the_scene(subject)
        for measure in MEASURES:
            if measure.name in samples and not samples[measure.name]:
                _say(f"{subject.server.name}: {measure.title}")
                samples[measure.name] = [measure.take(subject, effort.seconds) for _ in range(effort.rounds)]
    finally:
        subject.stop()
    return samples


def _started(start: Callable[[], Subject], samples: Samples, effort: Effort) -> Subject:
    """A running server; when readiness is wanted it was started from nothing as often as there are rounds."""
    for _ in range(effort.rounds - 1 if "ready" in samples else 0):
        subject = start()
        samples["ready"].append(_ready(subject, 0))
        subject.stop()
    subject = start()
    if "ready" in samples:
        samples["ready"].append(_ready(subject, 0))
    return subject


def _memory_rounds(subject: Subject, samples: Samples) -> None:
    if "memory-idle" in samples:
        samples["memory-idle"] = [_memory(subject, 0)]
    subject.prepare()
    for namespace in ("filled", "listed", "created"):
        subject.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    if "memory-10k" in samples:
        _say(f"{subject.server.name}: {_FILLED} objects")
        wrk.fill(subject, Load("POST", objects.collection("filled"), objects.wagon("filled-@K@")), _FILLED)
        samples["memory-10k"] = [_memory(subject, 0)]


def _set_the_scene(subject: Subject) -> None:
    """The 500 objects that are got, patched and listed, each with a status, and those that are watched."""
    load = Load("POST", objects.collection("listed"), objects.wagon("listed-@N@"), cycle=_LISTED)
    wrk.fill(subject, load, _LISTED)
    wrk.fill(subject, _PATCH, _LISTED)
    fanout.prepare(subject)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
