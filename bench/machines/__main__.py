"""Provisions simulated machines by the thousand, in a process of its own, and prints what they took."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from bench.report import circumstances

_BUDGET_MB, _BUDGET_IDLE, _BUDGET_PLAN = 2048.0, 5.0, 100.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.machines", description=__doc__)
    parser.add_argument("--machines", type=int, default=5000)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    chosen = parser.parse_args()
    print(circumstances())
    print(
        "real: API server with durable storage and RBAC, Cluster API's controllers, bootstrap and machine providers, "
        "Jobs, registration. simulated: servers (1 s to boot), the Jobs' processes (tasks), agents (models)",
        flush=True,
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.machines.machines",
            f"--machines={chosen.machines}",
            f"--clusters={chosen.clusters}",
            f"--idle-seconds={chosen.idle_seconds}",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{found['machines']} machines in {found['clusters']} clusters: all ready, their agents connected, after "
        f"{found['seconds']:.0f} s ({found['cpu_seconds']:.0f} s CPU); {found['writes_per_machine']:.1f} writes per "
        f"machine; {found['rss_mb']:.0f} MB at most, {found['rss_mb'] * 1024 / found['machines']:.0f} KB per machine, "
        "agents included"
    )
    print("writes per machine: " + ", ".join(f"{table} {count:.1f}" for table, count in found["by_table"].items()))
    print(
        f"plan written -> started: p50 {found['plan_p50_ms']:.1f} ms, p99 {found['plan_p99_ms']:.1f} ms at 200 plans/s"
    )
    print(f"idle: {found['idle_cpu_percent']:.1f} % of a core, {found['writes_while_idle']} writes")
    verdicts = {
        f"{found['rss_mb']:.0f} MB (<= {_BUDGET_MB:.0f})": found["rss_mb"] <= _BUDGET_MB,
        f"idle {found['idle_cpu_percent']:.1f} % (<= {_BUDGET_IDLE:.0f} %)": found["idle_cpu_percent"] <= _BUDGET_IDLE,
        f"plan to start p99 {found['plan_p99_ms']:.0f} ms (<= {_BUDGET_PLAN:.0f})": found["plan_p99_ms"]
        <= _BUDGET_PLAN,
    }
    for text, met in verdicts.items():
        print(f"{'met' if met else 'MISSED'}: {text}")
    well = found["servers"] == found["connected"] == found["machines"]
    return 0 if well and all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
