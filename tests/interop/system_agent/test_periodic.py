from __future__ import annotations

import base64
from typing import Any

from tests.interop.system_agent.conftest import Host
from tests.lab.agents import UNIX_DATE, Data, unpacked


def records(data: Data) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = unpacked(data.get("applied-periodic-output", b""))
    return found


def text(value: str | None) -> bytes:
    return base64.b64decode(value or "")


def ran(name: str, times: int = 1) -> Any:
    return lambda data: name in records(data)


def test_periodic_instruction_runs_and_is_recorded(host: Host) -> None:
    host.give({"periodicInstructions": [host.shell("echo out; echo err >&2", name="p", periodSeconds=300)]})
    data = host.wait(ran("p"), "it has run")
    found = records(data)["p"]
    assert text(found["stdout"]) == b"out\n"
    assert text(found["stderr"]) == b""
    assert {key: found[key] for key in ("name", "exitCode", "lastFailedRunTime", "failures")} == {
        "name": "p", "exitCode": 0, "lastFailedRunTime": "", "failures": 0,
    }  # fmt: skip
    assert UNIX_DATE.fullmatch(found["lastSuccessfulRunTime"])


def _run_time(data: Data, name: str) -> str:
    return str(records(data).get(name, {}).get("lastSuccessfulRunTime", ""))


def test_periodic_instruction_repeats_after_its_period(host: Host) -> None:
    host.give(
        {
            "periodicInstructions": [
                host.shell(host.note("often"), name="often", periodSeconds=1),
                host.shell(host.note("rare"), name="rare", periodSeconds=300),
                host.shell(host.note("ten minutes"), name="default"),
                host.shell(host.note("nameless"), periodSeconds=1),
            ]
        }
    )
    first = records(host.wait(ran("default"), "it has run"))["often"]["lastSuccessfulRunTime"]
    host.until(lambda: host.noted.count("often") >= 2, "it has run again")
    if host.expected("an unchanged result of a periodic instruction is reported"):
        host.wait(lambda data: _run_time(data, "often") not in ("", first), "the Secret has the new time")
    else:
        assert _run_time(host.settle(), "often") == first
    assert host.noted.count("rare") == 1
    assert host.noted.count("ten minutes") == 1
    assert "nameless" not in host.noted


def test_applied_plan_runs_all_periodic_instructions(host: Host) -> None:
    periodic = [host.shell(host.note("periodic"), name="p", periodSeconds=300)]
    host.applied({"instructions": [host.shell(host.note("one"))], "periodicInstructions": periodic})
    host.wait(ran("p"), "it has run")
    host.applied({"instructions": [host.shell(host.note("two"))], "periodicInstructions": periodic})
    host.until(lambda: len(host.noted) == 4, "they have run again")
    assert host.noted == ["one", "periodic", "two", "periodic"]


def test_periodic_failure_is_recorded_and_delays_following_instructions(host: Host) -> None:
    """For the next pass, which may come before the first one is told of."""
    ends = f"{host.note('bad')}; echo out; echo err >&2; exit 5"
    bad = host.shell(ends, name="bad", periodSeconds=1, saveStderrOutput=True)
    behind = host.shell(host.note("behind"), name="behind", periodSeconds=1)
    host.give({"periodicInstructions": [bad, behind]})
    found = records(host.wait(ran("bad"), "it has run"))["bad"]
    assert found["exitCode"] == 5
    assert found["failures"] == 1
    assert text(found["stdout"]) == b"out\n"
    assert text(found["stderr"]) == b"err\n"
    assert found["lastSuccessfulRunTime"] == ""
    assert UNIX_DATE.fullmatch(found["lastFailedRunTime"])
    host.wait(ran("behind"), "the next pass runs it")
    assert host.noted[:2] == ["bad", "behind"]


def test_failed_periodic_instruction_backs_off_beyond_its_period(host: Host) -> None:
    bad = host.shell(f"{host.note('$CATTLE_AGENT_ATTEMPT_NUMBER')}; exit 1", name="bad", periodSeconds=1)
    host.give({"periodicInstructions": [bad]})
    host.wait(ran("bad"), "it has run")
    data = host.settle(5)
    assert host.noted == ["1"]
    assert records(data)["bad"]["failures"] == 1


def test_unstartable_periodic_instruction_is_recorded(host: Host) -> None:
    host.give({"periodicInstructions": [{"command": "there-is-no-such-command", "name": "p"}]})
    found = records(host.wait(ran("p"), "it is told of"))["p"]
    assert found["exitCode"] == -1
    assert found["failures"] == 1


def test_periodic_instruction_runs_after_one_time_failure(host: Host) -> None:
    host.give({"instructions": [host.shell("exit 1")], "periodicInstructions": [host.shell("echo x", name="p")]})
    data = host.wait(ran("p"), "it has run")
    assert text(records(data)["p"]["stdout"]) == b"x\n"
    assert host.secret.data["failure-count"] == b"1"
