"""`python -m bench.agent`: our agent and the real system-agent, side by side on one server: what an agent takes while
it has nothing to do, and how long after a plan is written its first instruction starts.

Both are real processes, each with a plan Secret of its own; the plans go to one and the other in turn, so that other
work on the machine falls on both. An instruction is `date`, which prints when it starts; the time runs from the moment
the write is sent. The exit code is 0 unless something broke: a missed budget is a result, which the table states.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.lab import Ours
from tests.lab.agents import Agent, Data, PlanSecret, RemudaAgent, SystemAgent, checksum, outputs
from tests.lab.peers import peer_path, pinned_version

from bench.report import Broken, aligned, circumstances

_MOST_MEGABYTES, _MOST_MILLISECONDS = 25.0, 100.0
_SETTLE_SECONDS = 5.0
_PERIOD_SECONDS = 5.0  # between two looks of an agent: the default
_TICKS = os.sysconf("SC_CLK_TCK")


class Subject:
    """An agent under measurement."""

    def __init__(self, kind: type[Agent], folder: Path, server: Ours) -> None:
        self.secret = PlanSecret(server, _PERIOD_SECONDS)
        self.agent = kind(folder / kind.name, self.secret, log_level="info")
        self.delays: dict[str, list[float]] = {"checksum": [], "plan-state": []}
        self._number = 0

    def start(self) -> None:
        self.agent.start()
        self.carry_out("checksum")
        assert self.agent.process is not None
        runs, asked = os.readlink(f"/proc/{self.agent.process.pid}/exe"), os.path.realpath(self.agent.command()[0])
        if runs != asked:
            raise Broken(
                f"{self.agent.name} is run by {runs}, not by {asked}: these figures would be of something else"
            )
        self.delays["checksum"].clear()  # it has just started

    def carry_out(self, flow: str) -> None:
        """One plan, from its writing to its result."""
        self._number += 1
        date = {"command": "date", "args": ["+%s%N"], "name": "started", "saveOutput": True}
        plan = {"instructions": [date], "number": self._number}
        states = {"plan_state": "pending"} if flow == "plan-state" else {"plan_state": None}
        written = time.time_ns()
        self.secret.write(plan, **states)
        wanted = checksum(plan)

        def done(data: Data) -> bool:
            return data.get("applied-checksum") == wanted and data.get("plan-state", b"succeeded") == b"succeeded"

        try:
            data = self.secret.wait(done, f"plan {self._number} is applied")
        except TimeoutError as error:
            raise Broken(f"{error}\n{self.agent.said()}") from None
        self.delays[flow].append((int(outputs(data["applied-output"])["started"]) - written) / 1e6)

    def megabytes(self) -> float:
        """Resident; what it has asked for and not touched does not count."""
        for line in self._about("status").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise Broken(f"{self.agent.name} has no memory:\n{self.agent.said()}")

    def processor_milliseconds(self) -> float:
        fields = self._about("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / _TICKS

    def _about(self, what: str) -> str:
        if not self.agent.running or self.agent.process is None:
            raise Broken(f"{self.agent.name} does not run:\n{self.agent.said()}")
        return Path(f"/proc/{self.agent.process.pid}/{what}").read_text()

    def stop(self) -> None:
        self.agent.stop()
        self.secret.close()


def measure(subjects: Sequence[Subject], plans: int, idle_seconds: float) -> list[list[Any]]:
    """Rows: what, the unit, the budget, and a value of each."""
    for subject in subjects:
        subject.start()
    time.sleep(_SETTLE_SECONDS)
    fresh = [subject.megabytes() for subject in subjects]
    for flow in ("checksum", "plan-state"):
        for _ in range(plans):
            for subject in subjects:
                subject.carry_out(flow)
                time.sleep(random.uniform(0, 0.1))
    time.sleep(_SETTLE_SECONDS)
    before = [subject.processor_milliseconds() for subject in subjects]
    time.sleep(idle_seconds)
    used = [subject.processor_milliseconds() - was for subject, was in zip(subjects, before, strict=True)]
    worked = [subject.megabytes() for subject in subjects]
    rows: list[list[Any]] = [
        ["memory, idle", "MB", _MOST_MEGABYTES, *fresh],
        [f"memory, idle after {2 * plans} plans", "MB", _MOST_MEGABYTES, *worked],
        ["processor, idle, a minute", "ms", None, *(value * 60 / idle_seconds for value in used)],
    ]
    for flow in ("checksum", "plan-state"):
        for share, name, budget in (
            (0.5, "p50", _MOST_MILLISECONDS),
            (0.99, "p99", _MOST_MILLISECONDS),
            (1.0, "worst", None),
        ):
            values = [_quantile(subject.delays[flow], share) for subject in subjects]
            rows.append([f"plan written to started, by {flow}, {name}", "ms", budget, *values])
    return rows


def _quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so great a share of all does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def table(rows: Sequence[Sequence[Any]]) -> str:
    cells = [["what", "ours", "peer", "ratio", "budget", "verdict"]]
    for title, unit, budget, ours, *peer in rows:
        line = [title, f"{ours:.3g} {unit}"]
        line += [f"{peer[0]:.3g} {unit}", f"{ours / peer[0]:.2f}x" if peer[0] else ""] if peer else ["", ""]
        line += [f"<= {budget:g} {unit}", "met" if ours <= budget else "MISSED"] if budget else ["", ""]
        cells.append(line)
    return aligned(cells)


def _host_python() -> str:
    """The distribution's, which is what an agent runs with on a host."""
    return "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else RemudaAgent.python


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.agent", description=__doc__)
    parser.add_argument("--plans", type=int, default=200, help="of each flow, to each agent; default %(default)s")
    parser.add_argument("--idle-seconds", type=float, default=60.0, help="to watch them idle; default %(default)s")
    parser.add_argument("--python", default=_host_python(), help="to run our agent with; default %(default)s")
    parser.add_argument("--ours-alone", action="store_true", help="no peer, no ratios: for work on our side")
    chosen = parser.parse_args()
    kinds: list[type[Agent]] = [RemudaAgent] if chosen.ours_alone else [RemudaAgent, SystemAgent]
    if not chosen.ours_alone and (os.geteuid() != 0 or not os.access(peer_path("system-agent"), os.X_OK)):
        print("bench: the peer needs root and a build: interop/build system-agent; or --ours-alone", file=sys.stderr)
        return 1
    RemudaAgent.python = chosen.python
    said = subprocess.run([chosen.python, "--version"], capture_output=True, text=True, check=True)
    python = f"{said.stdout.strip()} ({chosen.python})"
    print(circumstances())
    peer = f"system-agent {pinned_version('system-agent')}"
    print(f"ours: remuda-agent.pyz on {python}; peer: {peer}; {chosen.plans} plans of each flow")
    server = Ours()
    with tempfile.TemporaryDirectory(prefix="remuda-bench-agent-") as folder:
        subjects = [Subject(kind, Path(folder), server) for kind in kinds]
        try:
            print(table(measure(subjects, chosen.plans, chosen.idle_seconds)))
        except Broken as broken:
            print(f"bench: {broken}", file=sys.stderr)
            return 1
        finally:
            for subject in subjects:
                subject.stop()
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
