"""A unit's file, read as systemd reads it."""

from __future__ import annotations

import pytest

from remuda.lab.units.unitfile import BadUnit, Command, environment_of, filled, parse, seconds

K3S = """
[Unit]
Description=ExecStart=/not/this

[Service]
Type=notify
EnvironmentFile=-/etc/systemd/system/%N.service.env
Environment=A=1 "B=two words"
KillMode=process
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=/bin/true
ExecStart=/usr/local/bin/k3s \\
    server '--flag=x y'
ExecStartPost=-/bin/ln -sfn "/a b" /c%%d$$e
"""


def test_distribution_unit_file_is_parsed() -> None:
    unit = parse("k3s.service", K3S)
    assert (unit.type, unit.restart, unit.restart_seconds, unit.start_seconds) == ("notify", "always", 5.0, 0.0)
    assert unit.start == (Command(("/usr/local/bin/k3s", "server", "--flag=x y"), False),)
    assert unit.before == (Command(("/sbin/modprobe", "br_netfilter"), True), Command(("/bin/true",), False))
    assert unit.started == (Command(("/bin/ln", "-sfn", "/a b", "/c%d$$e"), True),)
    assert unit.environment == (("A", "1"), ("B", "two words"))
    assert unit.environment_files == ("-/etc/systemd/system/k3s.service.env",)
    assert unit.kill_mode == "process"


def test_empty_value_resets_earlier_values() -> None:
    unit = parse("a.service", "[Service]\nExecStart=/bin/one\nExecStart=\nExecStart=/bin/two\n")
    assert unit.start == (Command(("/bin/two",), False),)


@pytest.mark.parametrize(
    "text",
    [
        "[Service]\nType=forking\nExecStart=/bin/true\n",
        "[Service]\nType=simple\n",
        "[Service]\nExecStart=/bin/one\nExecStart=/bin/two\n",
        "[Service]\nExecStart=/bin/sh -c 'never ends\n",
        "[Service]\nExecStart=/bin/true\nRestartSec=soon\n",
    ],
)
def test_unsupported_or_invalid_unit_file_is_rejected(text: str) -> None:
    with pytest.raises(BadUnit):
        parse("a.service", text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("5s", 5), ("500ms", 0.5), ("1min 30s", 90), ("infinity", 0), ("", 90), ("0", 0), ("2h", 7200)],
)
def test_time_span_is_parsed_to_seconds(text: str, value: float) -> None:
    assert seconds(text, 90) == value


def test_variables_in_commands_are_expanded() -> None:
    environment = {"ONE": "1", "MANY": "a b"}
    words = ("x${ONE}y", "$MANY", "${MANY}", "$$HOME", "${NONE}", "$NONE")
    assert filled(words, environment) == ["x1y", "a", "b", "a b", "$HOME", ""]


def test_environment_file_is_parsed() -> None:
    text = '# no\nA=1\nB="q \\"w\\" \\$x \\\\"\nC=\'$y\'\n;D=no\nE=a=b\nnothing\n'
    assert environment_of(text) == {"A": "1", "B": 'q "w" $x \\', "C": "$y", "E": "a=b"}


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("always", 0, True),
        ("on-failure", 0, False),
        ("on-failure", 1, True),
        ("on-failure", None, True),
        ("no", 1, False),
        ("on-success", 0, True),
        ("on-abnormal", 1, False),
        ("on-abnormal", -9, True),
    ],
)
def test_restart_policy_decides_restart_by_exit_code(policy: str, code: int | None, again: bool) -> None:
    unit = parse("a.service", f"[Service]\nExecStart=/bin/true\nRestart={policy}\n")
    assert unit.restarts_after(code) is again
