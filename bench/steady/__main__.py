"""Holds a fleet of declared clusters with one `remuda up`, and prints what that costs while nothing happens.

python -m bench.steady                       500 clusters of ten nodes
python -m bench.steady --quick               30 clusters, a short look
python -m bench.steady --state FOLDER        keeps the fleet there, and takes it from there the next time
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import Broken, circumstances
from bench.steady.measuring import Found, measure
from bench.steady.world import WORLD

_BUDGET_MB, _BUDGET_IDLE, _BUDGET_GET = 2048.0, 5.0, 1.0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.steady", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="30 clusters and two minutes of doing nothing")
    parser.add_argument("--clusters", type=int, help="of ten nodes each; 500 unless told otherwise")
    parser.add_argument("--idle-seconds", type=float, help="of doing nothing; 300 unless told otherwise")
    parser.add_argument("--state", type=Path, help="where the fleet is kept between runs; removed if not given")
    parser.add_argument("--patterns", type=int, default=6, help="so many are made by controllers; others are copies")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended, too
    clusters = chosen.clusters or (30 if chosen.quick else 500)
    idle = chosen.idle_seconds or (120.0 if chosen.quick else 300.0)
    print(circumstances())
    print(
        "real: `remuda up` as a process of its own with everything in it, tunnels and their clients, HTTPS everywhere. "
        "simulated, in three other processes: agents (one task each, with the real one's requests), workload APIs "
        "(Nodes in memory, statuses every 5 min as kubelets send them), servers (the driver sim's)",
        flush=True,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="remuda-steady-", dir=os.environ.get("TMPDIR")) as scratch:
            folder: Path = chosen.state or Path(scratch)
            _raise(folder, clusters, chosen.patterns)
            found = measure(folder, idle)
    except Broken as broken:
        print(f"bench.steady: {broken}", file=sys.stderr)
        return 1
    return _tell(found)


def _raise(folder: Path, clusters: int, patterns: int) -> None:
    if (folder / WORLD).exists():
        return
    made = min(clusters, patterns)
    print(
        f"{made} clusters are made by all controllers in simulated time, {clusters - made} are copies of them under "
        "other names; this takes a while",
        flush=True,
    )
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="remuda-steady-", dir=memory) as scratch:
        sizes = [f"--clusters={clusters}", f"--patterns={patterns}"]
        arguments = [sys.executable, "-m", "bench.steady.raising", str(folder), f"--scratch={scratch}", *sizes]
        if subprocess.run(arguments, check=False).returncode:
            raise Broken("the fleet could not be made")


def _tell(found: Found) -> int:
    print(
        f"{found.clusters} clusters, {found.hosts} hosts, {found.tunnels} tunnels, {found.objects} objects: "
        f"ready after {found.ready_seconds:.1f} s, steady after {found.steady_seconds:.0f} s "
        f"({found.steady_cpu:.0f} s of CPU, {found.start_writes} writes)"
    )
    print(f"memory when steady: {found.memory_first}; after {found.idle_seconds:.0f} s more: {found.memory_last}")
    print(
        f"in {found.idle_seconds:.0f} s of doing nothing: {found.idle_percent:.2f} % of one core, "
        f"{found.writes} writes ({found.reports} by agents), {found.reconciles} reconciles, "
        f"{found.troubles} troubles of agents; load average of the machine {found.load:.1f}"
    )
    print("the others, of one core: " + ", ".join(f"{name} {value:.1f} %" for name, value in found.others.items()))
    for command, taken in found.commands.items():
        print(f"remuda {command}: {taken}, medians of 5")
    memory = max(found.memory_first.resident, found.memory_last.resident)
    cores = os.cpu_count() or 1
    share = found.idle_percent / cores
    listing = found.commands["get clusters -A"].passed
    verdicts = {
        f"held with {memory:.0f} MB (<= {_BUDGET_MB:.0f}); {found.memory_last.most:.0f} MB at most, while all agents "
        "came back at once": memory <= _BUDGET_MB,
        f"idle {share:.2f} % of {cores} cores (<= {_BUDGET_IDLE:.0f} %), {found.idle_percent:.2f} % of one": (
            share <= _BUDGET_IDLE
        ),
        f"remuda get clusters {listing:.2f} s (<= {_BUDGET_GET:.0f} s)": listing <= _BUDGET_GET,
    }
    for text, met in verdicts.items():
        print(f"{'met' if met else 'MISSED'}: {text}")
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
