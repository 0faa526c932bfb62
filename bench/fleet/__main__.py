"""Runs fleets of growing size, each in a process of its own, and prints what they took."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from bench.report import circumstances

_BUDGET_SECONDS, _BUDGET_WRITES, _BUDGET_IDLE = 120.0, 20.0, 5.0


def measure(clusters: int, boot_seconds: float, idle_seconds: float) -> dict[str, Any]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.fleet.fleet",
            f"--clusters={clusters}",
            f"--boot-seconds={boot_seconds}",
            f"--idle-seconds={idle_seconds}",
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def shown(result: dict[str, Any]) -> str:
    return (
        f"{result['clusters']:5d} clusters, {result['machines']:5d} machines: all Available after "
        f"{result['seconds']:6.1f} s ({result['cpu_seconds']:.1f} s CPU), "
        f"{result['writes_per_machine']:.1f} writes by controllers (events included) and "
        f"{result['reconciles_per_machine']:.1f} reconciles per machine, "
        f"{result['rss_mb']:.0f} MB at most, "
        f"idle {result['idle_cpu_percent']:.1f} % of a core and {result['writes_while_idle']} writes"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--clusters", type=int, action="append", help="sizes; 100, 300 and 1000 by default")
    parser.add_argument("--boot-seconds", type=float, default=1.0, help="of a simulated server")
    parser.add_argument("--idle-seconds", type=float, default=30.0, help="to watch the idle fleet")
    chosen = parser.parse_args()
    print(circumstances())
    print(
        "real: API server with durable storage, admission, core controllers, provider controllers. simulated: servers "
        f"({chosen.boot_seconds:g} s to boot), workload API servers and Nodes (in memory)"
    )
    results = []
    for size in chosen.clusters or [100, 300, 1000]:
        results.append(measure(size, chosen.boot_seconds, chosen.idle_seconds))
        print(shown(results[-1]), flush=True)
    last = results[-1]
    print(f"besides, users applied {last['applied_per_machine']:.1f} objects per machine")
    print("all writes per machine, by resource: " + ", ".join(f"{k} {v:.1f}" for k, v in last["by_table"].items()))
    if len(results) > 1:
        first = results[0]
        ratio = (last["cpu_seconds"] / last["clusters"]) / (first["cpu_seconds"] / first["clusters"])
        print(f"growth: {ratio:.2f}x the CPU per cluster at {last['clusters']} as at {first['clusters']} (1 is linear)")
    verdicts = {
        f"{last['seconds']:.0f} s for {last['clusters']} clusters (budget {_BUDGET_SECONDS:.0f} s for 1,000)": last[
            "seconds"
        ]
        <= _BUDGET_SECONDS,
        f"{last['writes_per_machine']:.1f} writes per machine (<= {_BUDGET_WRITES:.0f})": last["writes_per_machine"]
        <= _BUDGET_WRITES,
        f"idle {last['idle_cpu_percent']:.1f} % (<= {_BUDGET_IDLE:.0f} %)": last["idle_cpu_percent"] <= _BUDGET_IDLE,
    }
    for text, met in verdicts.items():
        print(f"{'met' if met else 'MISSED'}: {text}")
    return 0 if not any(r["servers_made_twice"] or r["violations"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
