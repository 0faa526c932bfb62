"""`python -m bench.proxy`: a cluster's API asked directly, through the proxy, and through the proxy and a tunnel, in
turn within each round of one run.

The cluster is etcd with the real kube-apiserver, or with `--behind ours` our own engine, which answers faster, so that
less hides what the proxy costs. Everything is on this machine: what a network adds is not measured. The exit code is 0
unless something broke.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import aiohttp

from bench.apiserver import objects
from bench.apiserver.subject import TOKEN, Subject, installed, start_ours, start_peer
from bench.apiserver.wrk import Load, fill, require_wrk
from bench.report import Broken, Effort, aligned, circumstances
from bench.tunnel.ends import Process

_OBJECTS = 500
_WATCHERS = 20
_WRITES_PER_SECOND = 50
_COME_SECONDS = 60.0
_LATENCY = re.compile(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)\s*$", re.MULTILINE)
_RATE = re.compile(r"^Requests/sec:\s+([\d.]+)$", re.MULTILINE)
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


class Way(NamedTuple):
    name: str
    url: str
    token: str


class Figures:
    def __init__(self, ways: Sequence[Way]) -> None:
        self._ways = ways
        self._rows: dict[tuple[str, str], dict[str, list[float]]] = {}

    def add(self, what: str, unit: str, way: Way, value: float) -> None:
        self._rows.setdefault((what, unit), {}).setdefault(way.name, []).append(value)

    def __str__(self) -> str:
        lines = [["what", *(way.name for way in self._ways)]]
        for (what, unit), found in self._rows.items():
            middle = {name: median(values) for name, values in found.items()}
            base = middle.get(self._ways[0].name)
            cells = []
            for number, way in enumerate(self._ways):
                value = middle.get(way.name)
                ratio = f" {value / base:.2f}x" if number and value is not None and base else ""
                cells.append("" if value is None else f"{value:.3g} {unit}{ratio}")
            lines.append([what, *cells])
        return aligned(lines)


def load(way: Way, path: str, connections: int, seconds: int) -> tuple[float, float, float]:
    """Requests a second, and milliseconds: median and p99."""
    command = [require_wrk(), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    command += ["-H", f"Authorization: Bearer {way.token}", "-H", "Accept: application/json", way.url + path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    rate = _RATE.search(done.stdout)
    waits = {at: (value, unit) for at, value, unit in _LATENCY.findall(done.stdout)}
    if done.returncode or rate is None or len(waits) != 2 or "Non-2xx" in done.stdout:
        raise Broken(f"wrk failed at {way.name} {path}: {done.stdout[-800:]}{done.stderr[-500:]}")
    half, most = (float(waits[at][0]) * _MILLISECONDS[waits[at][1]] for at in ("50", "99"))
    return float(rate[1]), half, most


async def watch(way: Way, subject: Subject, seconds: int) -> list[float]:
    """Milliseconds from before a write at the cluster itself until each of the watchers has its event."""
    path = objects.collection("watched")
    found: list[float] = []
    mark = repr(time.monotonic())  # what earlier runs have left behind is seen too, and does not count
    ready: asyncio.Queue[None] = asyncio.Queue()
    count = seconds * _WRITES_PER_SECOND

    async def watcher(session: aiohttp.ClientSession) -> None:
        async with session.get(f"{way.url}{path}?watch=1&timeoutSeconds=600") as answer:
            if answer.status != 200:
                raise Broken(f"{way.name} answered a watch with {answer.status}")
            ready.put_nowait(None)
            seen = 0
            async for line in answer.content:
                of, _, sent = json.loads(line)["object"]["spec"]["sent"].partition("/")
                if of == mark:
                    found.append((time.monotonic() - float(sent)) * 1000)
                    seen += 1
                if seen == count:
                    return

    connector = aiohttp.TCPConnector(ssl=False, limit=0)
    headers = {"Authorization": f"Bearer {way.token}"}
    limit = aiohttp.ClientTimeout(total=seconds * 10 + 60)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=limit, read_bufsize=1 << 20
    ) as session:
        watching = [asyncio.create_task(watcher(session)) for _ in range(_WATCHERS)]
        async with asyncio.timeout(_COME_SECONDS):
            for _ in watching:
                await ready.get()
        await asyncio.to_thread(_write, subject, path, mark, count)
        await asyncio.gather(*watching)
    return found


def _write(subject: Subject, path: str, mark: str, count: int) -> None:
    due = time.monotonic()
    for _ in range(count):
        due += 1 / _WRITES_PER_SECOND
        time.sleep(max(0.0, due - time.monotonic()))
        body = {"spec": {"sent": f"{mark}/{time.monotonic()!r}"}}
        subject.ask("PATCH", f"{path}/one", body, "application/merge-patch+json")


def measure(
    ways: Sequence[Way], subject: Subject, manager: Process, effort: Effort, say: Callable[[str], None]
) -> Figures:
    figures = Figures(ways)
    one, all_of_them = f"{objects.collection('listed')}/listed-0", objects.collection("listed")
    for number in range(effort.rounds):
        say(f"round {number + 1} of {effort.rounds}")
        for what, path, connections in (
            ("get one, 1 connection", one, 1),
            ("get one, 16 connections", one, 16),
            (f"list of {_OBJECTS} (1.2 MB), 1 connection", all_of_them, 1),
            (f"list of {_OBJECTS} (1.2 MB), 4 connections", all_of_them, 4),
        ):
            for way in ways:
                before = manager.processor_seconds()
                rate, half, most = load(way, path, connections, effort.seconds)
                spent = (manager.processor_seconds() - before) / (rate * effort.seconds)
                figures.add(what, "/s", way, rate)
                figures.add(f"  {what}, median", "ms", way, half)
                figures.add(f"  {what}, p99", "ms", way, most)
                if way is not ways[0]:
                    figures.add(f"  {what}, processor of the manager", "ms", way, spent * 1000)
        for way in ways:
            waits = sorted(asyncio.run(watch(way, subject, effort.seconds)))
            what = f"watch, {_WATCHERS} watchers, {_WRITES_PER_SECOND} writes/s"
            figures.add(f"{what}, median", "ms", way, waits[len(waits) // 2])
            figures.add(f"{what}, p99", "ms", way, waits[int(len(waits) * 0.99)])
    return figures


def run(start: Callable[[], Subject], effort: Effort, folder: Path, say: Callable[[str], None]) -> None:
    subject = start()
    children: list[Process] = []
    try:
        subject.prepare()
        for namespace in ("listed", "watched"):
            subject.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        fill(subject, Load("POST", objects.collection("listed"), objects.wagon("listed-@N@"), cycle=_OBJECTS), _OBJECTS)
        subject.ask("POST", objects.collection("watched"), json.loads(objects.wagon("one")))
        command = [sys.executable, "-m", "bench.proxy.server", "--data-dir", str(folder / "data")]
        command += ["--cluster", str(subject.server.kubeconfig), "--user", objects.USER]
        manager = Process(command, folder / "manager.log")
        children.append(manager)
        said = json.loads(manager.said)
        children.append(_tunnel(said, folder))
        ways = [
            Way("directly", f"https://{subject.host}:{subject.port}", TOKEN),
            Way("proxy", f"{said['url']}/k8s/clusters/direct", objects.USER),
            Way("proxy and tunnel", f"{said['url']}/k8s/clusters/tunnel", objects.USER),
        ]
        print(measure(ways, subject, manager, effort, say), flush=True)
        _check_ways(folder / "manager.log")
    finally:
        for child in reversed(children):
            child.stop()
        subject.stop()


def _tunnel(said: dict[str, str], folder: Path) -> Process:
    """As a host runs it; it is through when it has said so."""
    config, status = folder / "tunnel.json", folder / "status.json"
    settings = {
        "urls": [said["url"].replace("https://", "wss://") + "/v3/connect"],
        "authorities": [said["ca"]],
        "headers": {"X-Cluster": "tunnel", "X-Node": "node"},
        "allow": ["tcp/127.0.0.1:*"],
        "status_file": str(status),
    }
    config.write_text(json.dumps(settings))
    command = [sys.executable, "-m", "remuda.tunnel", "--config", str(config)]
    process = Process(command, folder / "tunnel.log", speaks=False)
    until = time.monotonic() + _COME_SECONDS
    while not (status.exists() and json.loads(status.read_text() or "{}").get("connected_to")):
        if time.monotonic() > until:
            process.stop()
            raise Broken(f"the tunnel does not come:\n{(folder / 'tunnel.log').read_text()[-2000:]}")
        time.sleep(0.05)
    return process


def _check_ways(log: Path) -> None:
    """What was asked for through the tunnel went through it, and nothing else did."""
    ways = set(re.findall(r'"cluster":"(\w+)".*?"through":"(\w+)"', log.read_text()))
    if ways != {("direct", "direct"), ("tunnel", "tunnel")}:
        raise Broken(f"requests did not go the way they should: {ways}")


def _progress() -> Callable[[str], None]:
    started = time.monotonic()
    return lambda text: print(f"{time.monotonic() - started:4.0f} s: {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.proxy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round instead of the median of five")
    parser.add_argument("--rounds", type=int, help="instead of five, or of one")
    parser.add_argument(
        "--behind", choices=["kube-apiserver", "ours"], default="kube-apiserver", help="the cluster's API"
    )
    chosen = parser.parse_args()
    effort = Effort(chosen.rounds or (1 if chosen.quick else 5), 2 if chosen.quick else 3)
    print(f"{circumstances()}; behind the proxy: {chosen.behind}; median of {effort.rounds}", flush=True)
    try:
        require_wrk()
        with tempfile.TemporaryDirectory(prefix="remuda-bench-proxy-") as folder, installed():
            run(start_ours if chosen.behind == "ours" else start_peer, effort, Path(folder), _progress())
    except Broken as broken:
        print(f"bench: {broken}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
