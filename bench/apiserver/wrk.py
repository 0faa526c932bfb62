"""Load from wrk, a client in C: what it costs to ask must not hide what it costs to answer."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.apiserver.subject import TOKEN, Subject
from bench.report import Broken, Sample

_SCRIPT = Path(__file__).with_name("load.lua")
_MISSING = "wrk, the load generator, is not installed; get it with: apt install wrk (or: brew install wrk)"
_FILL_SECONDS = 300

# Every number handed out once, so that no run creates what an earlier one has.
_numbers = itertools.count(1, 10_000_000)


@dataclass(frozen=True)
class Load:
    """@N@ and @K@ in path and body: see load.lua."""

    method: str
    path: str
    body: str = ""
    content_type: str = "application/json"
    connections: int = 16
    cycle: int = 0


def require_wrk() -> str:
    found = shutil.which("wrk")
    if found is None:
        raise Broken(_MISSING)
    return found


def requests_per_second(subject: Subject, load: Load, seconds: int) -> Sample:
    before = subject.cpu_seconds()
    result = _run(subject, load, seconds, limit=0)
    spent = subject.cpu_seconds() - before
    return Sample(result["requests"] / result["seconds"], spent / result["requests"] * 1e6)


def fill(subject: Subject, load: Load, count: int) -> None:
    """Sends exactly so many requests."""
    _run(subject, load, _FILL_SECONDS, limit=count)


def _run(subject: Subject, load: Load, seconds: int, limit: int) -> dict[str, float]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as body:
        body.write(load.body)
        body.flush()
        command = [require_wrk(), "-t1", f"-c{load.connections}", f"-d{seconds}s", "-s", str(_SCRIPT)]
        command += [f"https://{subject.host}:{subject.port}", "--", load.method, load.path, TOKEN, load.content_type]
        command += [body.name if load.body else "", str(next(_numbers)), str(load.cycle), str(limit)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode or not last.startswith("{"):
        raise Broken(f"wrk failed: {done.stdout[-500:]}{done.stderr[-500:]}")
    result: dict[str, float] = json.loads(last)
    if result["failed"] or not result["requests"]:
        raise Broken(f"{subject.server.name} failed {result['failed']} of {result['requests']}: {done.stderr[:500]}")
    return result
