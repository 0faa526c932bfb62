"""What an agent makes of a Machine Plan Secret: when a plan is applied, and which keys tell how that went. Pure.

The keys and rules are those of the node agents in the field, checksum flow: a plan is applied when its checksum is not
the applied one, after a failure not before a pause, and not any more once the most allowed failures are reached.
"""

from __future__ import annotations

import base64
import calendar
import gzip
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

Json = dict[str, Any]
Data = Mapping[str, bytes]  # of the Secret, decoded

SECRET_TYPE = "rke.cattle.io/machine-plan"  # noqa: S105
RETRY_SECONDS = 30.0
_PERIOD_SECONDS = 600
_MOST_PAUSES = 6


class Instruction(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    image: str = ""
    command: str = ""
    args: Sequence[str] = ()
    env: Sequence[str] = ()
    save_output: bool = False
    period_seconds: int = 0


class Probe(msgspec.Struct, frozen=True, rename="camel"):
    success_threshold: int = 0
    failure_threshold: int = 0


class Plan(msgspec.Struct, frozen=True, rename="camel"):
    instructions: Sequence[Instruction] = ()
    periodic_instructions: Sequence[Instruction] = ()
    probes: Mapping[str, Probe] = {}


class Result(NamedTuple):
    exit_code: int = 0
    stdout: bytes = b""


class Verdict(NamedTuple):
    """Whether the plan is applied now, else in how many seconds; None: not before it changes."""

    apply: bool
    seconds: float | None = None


def read(plan: bytes) -> Plan:
    """Raises msgspec.DecodeError."""
    return msgspec.json.decode(plan, type=Plan)


def checksum(plan: bytes) -> str:
    return hashlib.sha256(plan).hexdigest()


def verdict(data: Data, now: float, *, first_pass: bool) -> Verdict:
    """An agent that has just started applies its plan whatever it did before."""
    mine = checksum(data["plan"])
    if first_pass:
        return Verdict(True)
    if _text(data, "applied-checksum") == mine:
        return Verdict(False)
    failures = _number(data, "failure-count", 0)
    if not failures or _text(data, "failed-checksum") != mine:
        return Verdict(True)
    most = _number(data, "max-failures", -1)
    if most >= 0 and failures >= most:
        return Verdict(False)
    last = _parse(_text(data, "last-apply-time"))
    left = last + RETRY_SECONDS - now
    return Verdict(False, left) if left > 0 else Verdict(True)


def succeeded(data: Data, outputs: Mapping[str, bytes], now: float) -> dict[str, bytes]:
    """The keys a success writes."""
    return {
        "applied-checksum": checksum(data["plan"]).encode(),
        "applied-output": pack(unpack(data.get("applied-output", b"")) | _encoded(outputs)),
        "failed-checksum": b"",
        "failed-output": b"",
        "failure-count": b"0",
        "success-count": str(_number(data, "success-count", 0) + 1).encode(),
        "last-apply-time": unix_date(now).encode(),
    }


def failed(data: Data, outputs: Mapping[str, bytes], now: float) -> dict[str, bytes]:
    """The keys a failure writes. A failure of another plan does not count any more."""
    same = _text(data, "failed-checksum") == checksum(data["plan"])
    count = _number(data, "failure-count", 0) if same else 0
    return {
        "failed-checksum": checksum(data["plan"]).encode(),
        "failed-output": pack(_encoded(outputs)),
        "failure-count": str(count + 1).encode(),
        "success-count": b"0",
        "last-apply-time": unix_date(now).encode(),
    }


def _encoded(outputs: Mapping[str, bytes]) -> Json:
    return {name: base64.b64encode(output).decode() for name, output in outputs.items()}


# Periodic instructions


def seconds_until(record: Json | None, instruction: Instruction, now: float) -> float:
    """Until a periodic instruction is due; 0 when it is."""
    if record is None:
        return 0.0
    failures: int = record.get("failures", 0)
    if failures:
        pause = RETRY_SECONDS * min(failures, _MOST_PAUSES)
        return max(0.0, _parse(record.get("lastFailedRunTime", "")) + pause - now)
    period = instruction.period_seconds or _PERIOD_SECONDS
    return max(0.0, _parse(record.get("lastSuccessfulRunTime", "")) + period - now)


def recorded(record: Json | None, name: str, result: Result, now: float) -> Json:
    before = record or {}
    well = result.exit_code == 0
    return {
        "name": name,
        "stdout": base64.b64encode(result.stdout).decode(),
        "stderr": "",
        "exitCode": result.exit_code,
        "lastSuccessfulRunTime": unix_date(now) if well else before.get("lastSuccessfulRunTime", ""),
        "lastFailedRunTime": "" if well else unix_date(now),
        "failures": 0 if well else before.get("failures", 0) + 1,
    }


# Probes


def probed(status: Json, probe: Probe, well: bool) -> Json:
    """A probe's status after one more look; zero and false are left out."""
    successes, failures = status.get("successCount", 0), status.get("failureCount", 0)
    healthy = status.get("healthy", False)
    if well:
        threshold = probe.success_threshold or 1
        successes, failures = min(successes + 1, threshold), 0
        healthy = healthy or successes >= threshold
    else:
        threshold = probe.failure_threshold or 3
        successes, failures = 0, min(failures + 1, threshold)
        healthy = healthy and failures < threshold
    found = {"healthy": healthy, "successCount": successes, "failureCount": failures}
    return {key: value for key, value in found.items() if value}


# Formats


def pack(value: Json) -> bytes:
    """As outputs are kept: the same value gives the same bytes."""
    return gzip.compress(msgspec.json.encode(value), mtime=0)


def unpack(value: bytes) -> Json:
    if not value:
        return {}
    found: Json = msgspec.json.decode(gzip.decompress(value))
    return found


_UNIX_DATE = "%a %b %d %H:%M:%S UTC %Y"


def unix_date(seconds: float) -> str:
    """`Thu Jan  1 00:00:00 UTC 2026`: the day is padded with a blank."""
    moment = time.gmtime(seconds)
    return time.strftime(f"%a %b {moment.tm_mday:2d} %H:%M:%S UTC %Y", moment)


def _parse(text: str) -> float:
    """Seconds since the epoch; 0 for what is no time."""
    try:
        return float(calendar.timegm(time.strptime(text, _UNIX_DATE)))
    except ValueError:
        return 0.0


def _text(data: Data, key: str) -> str:
    return data.get(key, b"").decode()


def _number(data: Data, key: str, default: int) -> int:
    try:
        return int(_text(data, key))
    except ValueError:
        return default
