"""Plan Secrets as the agent reads them: plans, outputs in gzip, and what decides whether a plan is run."""

from __future__ import annotations

import json

from remuda.agent import formats, plan, rules
from tests.fuzz.source import Source

_NAMES = (
    *("files", "instructions", "periodicInstructions", "probes", "path", "content", "directory", "uid", "permissions"),
    *("name", "image", "command", "args", "env", "saveOutput", "periodSeconds", "httpGet", "url", "insecure", "YQ=="),
    *("failures", "lastSuccessfulRunTime", "lastFailedRunTime", "stdout", "Mon Jan  2 15:04:05 UTC 2006", "exitCode"),
)
_KEYS = (
    *(rules.STATE, rules.APPLIED_CHECKSUM, rules.FAILED_CHECKSUM, rules.FAILURES, rules.MAX_FAILURES, rules.LAST_APPLY),
    *(rules.REVISION, rules.SUCCESSES, rules.PROBE_PERIOD, rules.PROBES),
)
_MOST_UNPACKED = 1 << 20


def check(data: bytes) -> None:
    """Raise if a plan is neither read nor refused, or outputs do not survive being packed."""
    source = Source(data)
    form = source.byte() % 4
    if form == 0:
        _check_plan(source.rest())
    elif form == 1:
        _check_plan(json.dumps(source.object(_NAMES)).encode())
    elif form == 2:
        _check_outputs(source)
    else:
        _check_rules(source)


def _check_plan(content: bytes) -> None:
    try:
        found = plan.parse(content)
    except plan.PlanError as error:
        assert len(str(error)) <= len(content) + 200
        return
    assert len(found.files) + len(found.instructions) + len(found.periodic_instructions) <= len(content)


def _check_outputs(source: Source) -> None:
    if source.flag():
        packed = source.rest()
        try:
            assert len(formats.inflate(packed, _MOST_UNPACKED)) <= _MOST_UNPACKED
        except ValueError:
            pass
        formats.unpack(packed)
        return
    value = source.object(_NAMES)
    assert formats.unpack(formats.pack(value)) == json.loads(json.dumps(value))
    room = 64 + source.byte() * 16
    assert len(formats.fitted(value, room)) <= max(room, len(formats.pack({})))


def _check_rules(source: Source) -> None:
    secret = {key: source.text().encode() for key in _KEYS if source.flag()}
    secret[rules.PLAN] = b"{}"
    secret[rules.APPLIED_OUTPUT] = source.take(64) if source.flag() else formats.pack(source.object(_NAMES))
    if source.flag():
        secret[rules.PROBES] = json.dumps(source.json(("healthy", "successCount"))).encode()
    now = 1.7e9
    rules.verdict(secret, now)
    rules.claimed(secret)
    rules.succeeded(secret, {"a": b"b"}, now)
    rules.failed(secret, {"a": b"b"}, now, source.text())
    rules.settled(secret)
    assert isinstance(rules.probe_statuses(secret), dict)
    assert 0 < rules.probe_period(secret, 5.0) < 1e6
