"""`python -m bench.tunnel`: our tunnel and upstream's remotedialer, side by side in one run, over TLS.

Every figure is taken with both ends upstream's, both ours, and one of each, in turn within each round, so that other
work on the machine falls on all. Pairs are named server first. The exit code is 0 unless something broke: a missed
budget is a result, which the table states.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from tests.lab.peers import peer_path

from bench.report import Broken, Budget, aligned, circumstances
from bench.tunnel import many
from bench.tunnel.api import Api
from bench.tunnel.ends import GO, OURS, Pair, Process, Server
from bench.tunnel.traffic import DOWN, FILLING_SECONDS, UP, bulk, flow, latencies, quantile, slow_consumers

_PEER, _OURS = "go-go", "ours-ours"
_PAIRS = (_PEER, _OURS, "ours-go", "go-ours")
_SETTLED_WITHIN = 15.0  # seconds
_MOST_BY_SLOW = 10.0  # percent
_TURNS = 8  # per round, where a loss of a few percent is looked for
_MANIFEST = Path(__file__).parents[2] / "interop" / "remotedialer" / "go.mod"


@dataclass(frozen=True)
class Effort:
    rounds: int
    mebibytes: int
    requests: int
    tunnels: int  # idle ones, for memory
    returning: int  # that come back at once


@dataclass
class Figures:
    """A row: values of each pair, round by round. `mixed` is the budget where one end is upstream's."""

    title: str
    unit: str
    budget: Budget | None = None
    mixed: Budget | None = None
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, pair: str, value: float) -> None:
        self.values.setdefault(pair, []).append(value)

    def cells(self) -> list[str]:
        line = [self.title]
        peer = median(self.values[_PEER]) if _PEER in self.values else None
        for pair in _PAIRS:
            if pair not in self.values:
                line.append("")
                continue
            value = median(self.values[pair])
            text = f"{value:.3g} {self.unit}"
            if peer and pair != _PEER:
                budget = self.budget if pair == _OURS else self.mixed
                ratio = value / peer
                verdict = "" if budget is None or budget.is_met(ratio) else " MISSED"
                text += f" {ratio:.2f}x{verdict}"
            line.append(text)
        return [*line, str(self.budget or ""), str(self.mixed or "")]


def table(rows: Sequence[Figures]) -> str:
    return aligned([["what", *_PAIRS, "budget", "one end ours"], *(row.cells() for row in rows)])


def at_least(ratio: float) -> Budget:
    return Budget(ratio, more_is_better=True)


def at_most(ratio: float) -> Budget:
    return Budget(ratio, more_is_better=False)


def measure_traffic(pairs: Sequence[Pair], effort: Effort, say: Callable[[str], None]) -> list[Figures]:
    flows = {}
    used = {}
    for streams, budget in ((1, at_least(1)), (100, at_least(0.8))):
        for direction, name in ((UP, "to the server"), (DOWN, "to the client")):
            many_streams = "1 stream" if streams == 1 else f"{streams} streams"
            flows[streams, direction] = Figures(f"{many_streams} {name}", "MB/s", budget, at_least(0.8))
            used[streams, direction] = Figures(f"  processor of both ends, {many_streams} {name}", "ms/MB")
    waits = {}
    for when in ("idle", "beside a bulk stream"):
        for share, name, budget in ((0.5, "p50", None), (0.99, "p99", at_most(2))):
            waits[when, share] = Figures(f"request and answer, {when}, {name}", "ms", budget)
    for number in range(effort.rounds):
        say(f"round {number + 1} of {effort.rounds}")
        for (streams, direction), row in flows.items():
            for pair in pairs:
                # Many streams get more, or what is measured is how they are opened.
                found = flow(pair, direction, streams, effort.mebibytes * (1 if streams == 1 else 2))
                row.add(pair.name, found.megabytes_per_second)
                used[streams, direction].add(pair.name, found.processor)
        for pair in pairs:
            _add_waits(waits, "idle", pair, effort.requests)
            with bulk(pair):
                _add_waits(waits, "beside a bulk stream", pair, effort.requests)
    rows = [row for key in flows for row in (flows[key], used[key])]
    return [*rows, *waits.values()]


def _add_waits(waits: dict[tuple[str, float], Figures], when: str, pair: Pair, times: int) -> None:
    found = latencies(pair, times)
    for (kind, share), row in waits.items():
        if kind == when:
            row.add(pair.name, quantile(found, share))


def measure_slow_consumer(pairs: Sequence[Pair], effort: Effort) -> Figures:
    """What the others lose, in percent: the median over many short turns, each of which is taken alone and beside them,
    in alternating order. Other work on the machine changes a transfer's speed by more than what is looked for, but
    rarely between the two halves of one turn."""
    row = Figures("a stream's loss beside two nobody reads", "%")
    for pair in pairs:

        def alone(pair: Pair = pair) -> float:
            time.sleep(FILLING_SECONDS)  # a transfer after a pause is slower, whatever is beside it
            return flow(pair, UP, 1, effort.mebibytes).megabytes_per_second

        def beside(pair: Pair = pair) -> float:
            with slow_consumers(pair):
                return flow(pair, UP, 1, effort.mebibytes).megabytes_per_second

        try:
            row.add(pair.name, _loss(alone, beside, effort.rounds * _TURNS))
        except Broken as broken:
            if pair.name != _PEER:
                raise
            # Both ends of upstream's may stop reading and wait for each other, until the tunnel ends after a minute.
            print(f"{pair.name}: its tunnel was lost beside streams that nobody reads: {broken}")
    return row


def _loss(alone: Callable[[], float], beside: Callable[[], float], turns: int) -> float:
    ratios = []
    for turn in range(turns):
        if turn % 2:
            slowed, free = beside(), alone()
        else:
            free, slowed = alone(), beside()
        ratios.append(slowed / free)
    return max(0.0, 100 * (1 - median(ratios)))


def measure_memory(pairs: Sequence[Pair], title: str) -> Figures:
    row = Figures(title, "MB", at_most(1))
    for pair in pairs:
        if pair.name in (_PEER, _OURS):
            row.add(pair.name, pair.client.megabytes())
    return row


def measure_api(pair: Pair, seconds: float) -> list[str]:
    api = Api(Path(pair.server.said["kubeconfig"]))
    api.latencies(0.5)
    idle = api.latencies(seconds)
    with bulk(pair):
        beside = api.latencies(seconds)
    return [
        f"API server beside it, get {when}: p50 {quantile(found, 0.5):.2f} ms, p99 {quantile(found, 0.99):.2f} ms"
        for found, when in ((idle, "with an idle tunnel"), (beside, "while a tunnel is full"))
    ]


def run(effort: Effort, python: str, folder: Path, say: Callable[[str], None]) -> None:
    children: list[Process] = []
    try:
        service = Process([sys.executable, "-m", "bench.tunnel.service"], folder / "service.log")
        children.append(service)
        servers = {}
        for kind in (GO, OURS):
            servers[kind] = Server(kind, folder)
            children.append(servers[kind].process)
        pairs = []
        for name in _PAIRS:
            at, _, client = name.partition("-")
            pairs.append(Pair(servers[at], client, int(service.said), folder, python))
            children.append(pairs[-1].client)
        rows = [measure_memory(pairs, "client's memory, connected")]
        per_tunnel = Figures(f"server's memory per idle tunnel, of {effort.tunnels}", "KB", at_most(1))
        for server in servers.values():
            say(f"{effort.tunnels} tunnels to the server of {server.kind}")
            per_tunnel.add(f"{server.kind}-{server.kind}", many.kilobytes_per_tunnel(server, effort.tunnels, folder))
        traffic = measure_traffic(pairs, effort, say)
        rows = [*traffic, *rows, measure_memory(pairs, "client's memory, idle after all that"), per_tunnel]
        print(table(rows), flush=True)
        say("streams nobody reads")
        slow = measure_slow_consumer(pairs, effort)
        print(table([slow]))
        lost = median(slow.values[_OURS])
        print(f"slow consumers cost {lost:.1f} % < {_MOST_BY_SLOW:g} %: {_verdict(lost < _MOST_BY_SLOW)}")
        for line in measure_api(pairs[1], effort.rounds):
            print(line)
        say(f"{effort.returning} tunnels come back")
        back = many.seconds_until_all_are_back(servers[OURS], effort.returning, folder)
        children.append(servers[OURS].process)
        print(
            f"{effort.returning} tunnels back after a restart in {back:.1f} s <= {_SETTLED_WITHIN:g} s: "
            f"{_verdict(back <= _SETTLED_WITHIN)}"
        )
    finally:
        for child in reversed(children):
            child.stop()


def _verdict(met: bool) -> str:
    return "met" if met else "MISSED"


def _progress() -> Callable[[str], None]:
    started = time.monotonic()
    return lambda text: print(f"{time.monotonic() - started:4.0f} s: {text}", file=sys.stderr, flush=True)


def _host_python() -> str:
    """The distribution's, which is what a client runs with on a host."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tunnel", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round instead of the median of five")
    parser.add_argument("--rounds", type=int, help="instead of five, or of one")
    parser.add_argument("--python", default=_host_python(), help="to run our client with; default %(default)s")
    chosen = parser.parse_args()
    effort = Effort(5, 100, 500, 500, 1000) if not chosen.quick else Effort(1, 32, 200, 100, 200)
    effort = replace(effort, rounds=chosen.rounds or effort.rounds)
    if not os.access(peer_path("remotedialer"), os.X_OK):
        print("bench: the peer needs a build: interop/build remotedialer", file=sys.stderr)
        return 1
    version = re.search(r"rancher/remotedialer (v\S+)", _MANIFEST.read_text())
    python = subprocess.run([chosen.python, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(circumstances())
    print(
        f"peer: remotedialer {version[1] if version else '?'}; our client on {python} ({chosen.python}); "
        "pairs are server-client"
    )
    with tempfile.TemporaryDirectory(prefix="remuda-bench-tunnel-") as folder:
        try:
            run(effort, chosen.python, Path(folder), _progress())
        except Broken as broken:
            print(f"bench: {broken}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
