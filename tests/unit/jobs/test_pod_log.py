"""A log as it is asked for: follow, tail, since, timestamps, limit."""

from __future__ import annotations

import pytest

from remuda.jobs.in_process import MemoryLog
from remuda.jobs.pod_log import parse, stream
from remuda.kube import clock
from remuda.kube.errors import StatusError


def a_log(*lines: str) -> MemoryLog:
    log = MemoryLog()
    for line in lines:
        log.write(line)
    return log


async def shown(log: MemoryLog, **query: str) -> str:
    found = stream(log, parse(query, "pod", "work"), lambda: True)
    return b"".join([chunk async for chunk in found]).decode()


async def test_pod_log_without_options_returns_all_lines() -> None:
    assert await shown(a_log("one", "two")) == "one\ntwo\n"


async def test_pod_log_honours_tail_limit_and_since_options() -> None:
    log = a_log("one", "two", "three")
    assert await shown(log, tailLines="1") == "three\n"
    assert await shown(log, tailLines="0") == ""
    assert await shown(log, limitBytes="5") == "one\nt"
    assert await shown(log, sinceTime="2100-01-01T00:00:00Z") == ""
    assert await shown(log, sinceSeconds="3600") == "one\ntwo\nthree\n"


async def test_pod_log_timestamps_option_prefixes_each_line() -> None:
    line = await shown(a_log("one"), timestamps="true")
    time, _, text = line.partition(" ")
    assert text == "one\n"
    assert abs(clock.parse(time) - clock.time()) < 3600


async def test_memory_log_keeps_only_latest_lines() -> None:
    log = a_log(*(f"line {number}" for number in range(5000)))
    lines = (await shown(log)).splitlines()
    assert lines[-1] == "line 4999"
    assert len(lines) < 1000


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"container": "other"}, "container other is not valid for pod pod"),
        ({"previous": "true"}, "previous terminated container"),
        ({"tailLines": "-1"}, "tailLines must be a number"),
        ({"sinceSeconds": "soon"}, "sinceSeconds must be a number"),
        ({"sinceTime": "yesterday"}, "sinceTime"),
        ({"limitBytes": "0"}, "limitBytes must be a number of at least 1"),
    ],
)
def test_invalid_pod_log_query_is_rejected(query: dict[str, str], words: str) -> None:
    with pytest.raises(StatusError, match=words):
        parse(query, "pod", "work")
