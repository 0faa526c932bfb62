"""Rules that decide when a plan is applied, and the keys of its Secret that report the result. Pure.

The keys and the rules are those of existing agents, with one exception: a run that has finished is never repeated
because the agent was restarted.

There are two flows. If the Secret has `plan-state`, its writer requests each run by `pending`. Otherwise the checksum
of the plan decides: the plan is applied when its checksum is not the applied one. After a failure the agent pauses
before the next attempt, and it gives up at the failure limit. A time in the future, left by a wrong clock, delays
nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from remuda.agent.formats import Json, fitted, parse_json, seconds_of, shortened, unix_date, unpack
from remuda.agent.plan import Instruction, Probe

Data = Mapping[str, bytes]  # decoded data of the Secret

PLAN = "plan"
STATE = "plan-state"
REVISION = "plan-revision"
APPLIED_CHECKSUM = "applied-checksum"
APPLIED_OUTPUT = "applied-output"
PERIODIC_OUTPUT = "applied-periodic-output"
FAILED_CHECKSUM = "failed-checksum"
FAILED_OUTPUT = "failed-output"
FAILED_MESSAGE = "failed-message"  # our own key: the error message
FAILURES = "failure-count"
SUCCESSES = "success-count"
LAST_APPLY = "last-apply-time"
PROBES = "probe-statuses"
MAX_FAILURES = "max-failures"
PROBE_PERIOD = "probe-period-seconds"

PENDING, IN_PROGRESS, SUCCEEDED, FAILED = "pending", "in-progress", "succeeded", "failed"

# Keys that an agent may write; only the manager writes the others.
RESULT_KEYS = frozenset((
    STATE, REVISION, APPLIED_CHECKSUM, APPLIED_OUTPUT, PERIODIC_OUTPUT, FAILED_CHECKSUM, FAILED_OUTPUT, FAILED_MESSAGE,
    FAILURES, SUCCESSES, LAST_APPLY, PROBES,
))  # fmt: skip

# The periods and the limit of six pauses are the same as in system-agent.
RETRY_SECONDS = 30.0
PROBE_SECONDS = 5.0
RETELL_SECONDS = 3600.0  # an unchanged result of a periodic instruction is reported again after this time
_PERIOD_SECONDS = 600
_MOST_PAUSES = 6

MOST_MESSAGE = 4 << 10
# Kubernetes limits a Secret to 1 MiB.
_MOST_SECRET = (1 << 20) - (64 << 10)  # limit of all values together; the rest is for other writers


class ApplyDecision(NamedTuple):
    """Decision whether to apply the plan now, and as which attempt. If not now: in how many seconds; None means not
    before the Secret changes.

    `claim`: the flow by plan-state requires that `in-progress` is acknowledged first. `attempt_id` tells this run from
    all others of the same plan.
    """

    apply: bool
    seconds: float | None = None
    attempt: int = 1
    claim: bool = False
    attempt_id: str = ""


class Result(NamedTuple):
    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""


def checksum(plan: bytes) -> str:
    """Return the SHA-256 of the exact bytes. The manager compares it with its own, over the bytes that it stored."""
    return hashlib.sha256(plan).hexdigest()


def verdict(data: Data, now: float) -> ApplyDecision:
    return _by_state(data) if data.get(STATE) else _by_checksum(data, now)


def _by_state(data: Data) -> ApplyDecision:
    state, revision = text(data, STATE), number(data, REVISION, 0)
    if state == PENDING:
        return ApplyDecision(False, claim=True, attempt_id=f"revision-{revision + 1}")
    if state == IN_PROGRESS:
        return ApplyDecision(True, attempt_id=f"revision-{revision}")  # each requested run is a first attempt
    return ApplyDecision(False)


def _by_checksum(data: Data, now: float) -> ApplyDecision:
    if text(data, APPLIED_CHECKSUM) == checksum(data[PLAN]):
        return ApplyDecision(False)
    failures = _failures_of_this_plan(data)
    run = ApplyDecision(True, attempt=failures + 1, attempt_id=f"attempt-{failures + 1}")
    if not failures:
        return run
    most = number(data, MAX_FAILURES, -1)
    if most >= 0 and failures >= most:
        return ApplyDecision(False)
    left = _left(text(data, LAST_APPLY), RETRY_SECONDS, now)
    return ApplyDecision(False, left) if left > 0 else run


def _failures_of_this_plan(data: Data) -> int:
    """Return how often this plan has failed. Failures of another plan do not count."""
    same = text(data, FAILED_CHECKSUM) == checksum(data[PLAN])
    return max(0, number(data, FAILURES, 0)) if same else 0


# -- results


def claimed(data: Data) -> dict[str, bytes]:
    """Return the keys that report the start of a run."""
    return {STATE: IN_PROGRESS.encode(), REVISION: str(number(data, REVISION, 0) + 1).encode()}


def succeeded(data: Data, outputs: Mapping[str, bytes], now: float) -> dict[str, bytes]:
    # Outputs of earlier plans stay under their names, as in system-agent.
    kept = dict(unpack(data.get(APPLIED_OUTPUT, b"")))
    kept.update(_encoded(outputs))
    keys = {
        APPLIED_CHECKSUM: checksum(data[PLAN]).encode(),
        APPLIED_OUTPUT: fitted(kept, _room(data, APPLIED_OUTPUT, FAILED_OUTPUT, FAILED_MESSAGE)),
        FAILED_CHECKSUM: b"",
        FAILED_OUTPUT: b"",
        FAILURES: b"0",
        SUCCESSES: str(number(data, SUCCESSES, 0) + 1).encode(),
        LAST_APPLY: unix_date(now).encode(),
    }
    if FAILED_MESSAGE in data:
        keys[FAILED_MESSAGE] = b""
    if data.get(STATE):
        keys[STATE] = SUCCEEDED.encode()
    return keys


def failed(data: Data, outputs: Mapping[str, bytes], now: float, message: str = "") -> dict[str, bytes]:
    before = _failures_of_this_plan(data)
    kept = dict(unpack(data.get(FAILED_OUTPUT, b""))) if before else {}
    kept.update(_encoded(outputs))
    keys = {
        FAILED_CHECKSUM: checksum(data[PLAN]).encode(),
        FAILED_OUTPUT: fitted(kept, _room(data, FAILED_OUTPUT, FAILED_MESSAGE) - MOST_MESSAGE),
        FAILURES: str(before + 1).encode(),
        SUCCESSES: b"0",
        LAST_APPLY: unix_date(now).encode(),
    }
    if message or FAILED_MESSAGE in data:
        keys[FAILED_MESSAGE] = shortened(message.encode("utf-8", "replace"), MOST_MESSAGE)
    if data.get(STATE):
        keys[STATE] = FAILED.encode()
    return keys


def settled(data: Data) -> dict[str, bytes]:
    """Return the keys that clear the failures of other plans, once the Secret has the applied plan again."""
    # Not with plan-state: system-agent clears the failure of a plan there in its next pass, and the reason is lost.
    if data.get(STATE) or text(data, APPLIED_CHECKSUM) != checksum(data[PLAN]):
        return {}
    over = {FAILED_CHECKSUM: b"", FAILED_OUTPUT: b"", FAILED_MESSAGE: b"", FAILURES: b"0"}
    return {key: value for key, value in over.items() if data.get(key, value) != value}


def is_superseded(data: Data, results: Mapping[str, bytes]) -> bool:
    """Return whether the manager has requested another run meanwhile: a result must not overwrite `pending`."""
    ended = results.get(STATE) in (SUCCEEDED.encode(), FAILED.encode())
    return ended and data.get(STATE) == PENDING.encode()


def _encoded(outputs: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(output).decode() for name, output in outputs.items()}


# -- periodic instructions


def seconds_until(record: Json | None, instruction: Instruction, now: float) -> float:
    """Return the seconds until a periodic instruction is due; 0 if it is."""
    if record is None:
        return 0.0
    period = instruction.period_seconds or _PERIOD_SECONDS
    pause = RETRY_SECONDS * min(max(record.get("failures") or 0, 1), _MOST_PAUSES)
    return max(
        _left(record.get("lastSuccessfulRunTime") or "", period, now),
        _left(record.get("lastFailedRunTime") or "", pause, now),
    )


def recorded(record: Json | None, instruction: Instruction, result: Result, now: float) -> Json:
    before = record or {}
    well = result.exit_code == 0
    return {
        "name": instruction.name,
        "stdout": base64.b64encode(result.stdout).decode(),
        "stderr": base64.b64encode(result.stderr).decode() if instruction.save_stderr else "",
        "exitCode": result.exit_code,
        "lastSuccessfulRunTime": unix_date(now) if well else before.get("lastSuccessfulRunTime", ""),
        "lastFailedRunTime": "" if well else unix_date(now),
        "failures": 0 if well else (before.get("failures") or 0) + 1,
    }


def is_news(told: Json, records: Json, now: float) -> bool:
    """Return whether results of periodic instructions must be written to the Secret because they differ from it.

    An unchanged result is reported again after an hour, and never when the instruction succeeds without output: a host
    on which nothing changes writes nothing.
    """
    if told.keys() != records.keys():
        return True
    return any(
        _outcome(told[name]) != _outcome(record)
        or (_outcome(record) != _NOTHING and not _left(_last_run(told[name]), RETELL_SECONDS, now))
        for name, record in records.items()
    )


_NOTHING = (0, "", "")


def _outcome(record: Json) -> tuple[object, ...]:
    return record.get("exitCode"), record.get("stdout"), record.get("stderr")


def _last_run(record: Json) -> str:
    return str(record.get("lastFailedRunTime") or record.get("lastSuccessfulRunTime") or "")


def periodic(data: Data, records: Json) -> dict[str, bytes]:
    """Return the keys that report periodic instructions."""
    return {PERIODIC_OUTPUT: fitted(records, _room(data, PERIODIC_OUTPUT))}


# -- probes


def probed(status: Json, probe: Probe, well: bool) -> Json:
    """Return a probe's status after one more result; zero and false are omitted."""
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


def probe_statuses(data: Data) -> Json:
    """Return the probe statuses in the Secret; empty when they are unreadable, as if nothing had been probed."""
    try:
        found = parse_json(data.get(PROBES) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def probe_keys(statuses: Json) -> dict[str, bytes]:
    return {PROBES: json.dumps(statuses, sort_keys=True, separators=(",", ":")).encode()}


def probe_period(data: Data, default: float) -> float:
    try:
        period = float(text(data, PROBE_PERIOD))
    except ValueError:
        return default
    return period if 0 < period < 1e6 else default


# -- limits


def _room(data: Data, *written: str) -> int:
    """Return how many bytes these keys may take together, beside all other keys and the server's copy of the plan."""
    others = sum(len(value) for key, value in data.items() if key not in written)
    copy = len(data[PLAN]) - len(data.get("appliedPlan", b""))
    return max(0, _MOST_SECRET - others - max(0, copy))


def _left(since: str, seconds: float, now: float) -> float:
    """Return the seconds that are left of this period; 0 when it began in the future."""
    began = seconds_of(since)
    return 0.0 if began is None or began > now else max(0.0, began + seconds - now)


def text(data: Data, key: str) -> str:
    return data.get(key, b"").decode("utf-8", "replace")


def number(data: Data, key: str, default: int) -> int:
    try:
        return int(text(data, key))
    except ValueError:
        return default
