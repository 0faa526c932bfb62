"""Units on a host that is a folder: real programs, a real keeper, and the agent that looks after keepers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remuda.agent import program
from remuda.lab.units import unit_watch
from remuda.providers.bootstrap import assets
from tests.lab.limits import LIMIT_SECONDS

PONY = """
import os, signal, socket, sys, time
name = os.environ["NOTIFY_SOCKET"]
with open(os.environ["REMUDA_HOST_ROOT"] + "/starts", "a") as file:
    file.write(f"{os.getpid()} {os.environ['WORD']} {os.environ.get('SECRET')} {sys.argv[1:]}\\n")
if os.path.exists(os.environ["REMUDA_HOST_ROOT"] + "/lame"):
    sys.exit(3)
print("ready", flush=True)
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", "\\0" + name[1:])
time.sleep(1000)
"""
UNIT = """
[Service]
Type=notify
Restart=always
RestartSec=0
Environment=WORD=hay
EnvironmentFile=/etc/pony.env
ExecStartPre=/bin/sh -c 'echo before >> $REMUDA_HOST_ROOT/order'
ExecStart=/usr/local/bin/pony ${WORD}
ExecStopPost=/bin/sh -c 'echo after >> $REMUDA_HOST_ROOT/order'
[Install]
WantedBy=multi-user.target
"""


class Host:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.agent = folder / "agent.pyz"
        self.agent.write_bytes(assets.agent_zipapp())
        self.put("usr/local/bin/pony", f"#!{sys.executable}\n{PONY}", 0o755)
        self.put("etc/systemd/system/pony.service", UNIT)
        self.put("etc/pony.env", "WORD=oats\n")

    def put(self, path: str, content: str, mode: int = 0o644) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        target.chmod(mode)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """As a script of a plan calls it, with a secret of that plan in its environment."""
        command = [sys.executable, "-I", "-S", str(self.agent), "systemctl", "--root", str(self.root), "--", *words]
        environment = {**os.environ, "SECRET": "of the plan"}
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment)

    def pid(self) -> int:
        return int(self.run("show", "-p", "MainPID", "--value", "pony").stdout)

    def keeper(self) -> int:
        return int(json.loads((self.root / "run/remuda-units/pony.service.json").read_text())["keeper"])

    def lines(self, name: str) -> list[str]:
        path = self.root / name
        return path.read_text().splitlines() if path.exists() else []

    def clear(self) -> None:
        self.run("stop", "pony")
        mark = f"REMUDA_HOST_ROOT={self.root}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        os.kill(int(entry.name), signal.SIGKILL)
                except OSError:
                    continue


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    try:
        yield host
    finally:
        host.clear()


@pytest.fixture
def agent(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Starts the agent's part: of an agent that runs from its one file."""
    monkeypatch.setattr(program, "own_path", lambda: str(host.agent))
    monkeypatch.setattr(unit_watch, "_LOOK_SECONDS", 0.1)
    stop = threading.Event()
    yield lambda: unit_watch.begin(str(host.root), "127.0.0.9", stop)
    stop.set()


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_unit_is_started_restarted_and_stopped(host: Host) -> None:
    assert host.run("is-active", "pony").stdout == "inactive\n"
    assert host.run("start", "pony").returncode == 0
    active = host.run("is-active", "pony.service")
    assert (active.stdout, active.returncode) == ("active\n", 0)
    first = host.pid()
    assert host.lines("starts") == [f"{first} oats None ['oats']"]  # the file wins; nothing of the plan gets in
    assert host.run("start", "pony").returncode == 0
    assert host.pid() == first
    assert host.run("restart", "pony").returncode == 0
    second = host.pid()
    assert second != first
    assert not lives(first)
    assert host.run("stop", "pony").returncode == 0
    assert not lives(second)
    stopped = host.run("is-active", "pony")
    assert (stopped.stdout, stopped.returncode) == ("inactive\n", 3)
    assert host.lines("order") == ["before", "after", "before", "after"]
    assert (host.root / "var/log/pony.log").read_text() == "ready\nready\n"


def test_killed_unit_is_restarted_and_stopped_unit_is_not(host: Host) -> None:
    host.run("start", "pony")
    first = host.pid()
    os.kill(first, signal.SIGKILL)
    eventually(lambda: host.pid() not in (0, first))
    assert host.run("show", "-p", "NRestarts", "pony").stdout == "NRestarts=1\n"
    host.run("stop", "pony")
    time.sleep(1)  # longer than the keeper pauses before a start
    assert len(host.lines("starts")) == 2


def test_failed_start_is_reported_and_unit_recovers_later(host: Host) -> None:
    host.put("lame", "")
    failed = host.run("start", "pony")
    assert failed.returncode == 1
    assert "it ended with 3" in failed.stderr
    (host.root / "lame").unlink()
    eventually(lambda: host.run("is-active", "pony").stdout == "active\n")


def test_no_block_start_returns_before_unit_is_ready(host: Host) -> None:
    wait = "for _ in $$(seq 12000); do test -e $REMUDA_HOST_ROOT/go && break; sleep 0.05; done"
    host.put("etc/systemd/system/pony.service.d/slow.conf", f"[Service]\nExecStartPre=/bin/sh -c '{wait}'\n")
    assert host.run("--no-block", "restart", "pony").returncode == 0
    assert host.run("is-active", "pony").stdout == "activating\n"
    host.put("go", "")
    eventually(lambda: host.run("is-active", "pony").stdout == "active\n")


AFTER_START = """
[Service]
ExecStartPre=-/bin/rm -f "{link}"
ExecStartPost=-/bin/sh -c '(cat $REMUDA_HOST_ROOT/run/remuda-units/pony.service.json; echo) >> $REMUDA_HOST_ROOT/seen'
ExecStartPost=-/bin/ln -sfn /dev/null "{link}"
ExecStartPost=-/bin/false
ExecStopPost=-/bin/rm -f "{link}"
"""


def test_exec_start_post_runs_after_ready_and_before_active(host: Host) -> None:
    link = host.root / "active link"
    wait = "while not os.path.exists(os.environ['REMUDA_HOST_ROOT'] + '/go'): time.sleep(0.02)\n"
    host.put("usr/local/bin/pony", f"#!{sys.executable}\n{PONY.replace('print(', wait + 'print(')}", 0o755)
    host.put("etc/systemd/system/pony.service.d/active.conf", AFTER_START.format(link=link))
    link.symlink_to("/left/by/a/power/cut")
    assert host.run("--no-block", "start", "pony").returncode == 0
    eventually(lambda: host.lines("starts"))
    assert not link.is_symlink()
    host.put("go", "")
    eventually(lambda: host.run("is-active", "pony").stdout == "active\n")
    assert link.is_symlink()
    assert [json.loads(line)["state"] for line in host.lines("seen")] == ["activating"]
    os.kill(host.pid(), signal.SIGKILL)
    eventually(lambda: len(host.lines("seen")) == 2)
    assert host.run("stop", "pony").returncode == 0
    assert not link.is_symlink()


def test_unit_with_failing_or_hanging_exec_start_post_is_stopped(host: Host) -> None:
    drop_in = "etc/systemd/system/pony.service.d/post.conf"
    host.put(drop_in, "[Service]\nExecStartPost=/bin/false\n")
    failed = host.run("start", "pony")
    assert (failed.returncode, "/bin/false ended with 1" in failed.stderr) == (1, True)
    host.run("stop", "pony")
    host.put(drop_in, "[Service]\nKillMode=process\nExecStartPost=/bin/sleep 1000\n")
    host.run("--no-block", "start", "pony")
    eventually(lambda: host.pid())
    program = host.pid()
    assert host.run("is-active", "pony").stdout == "activating\n"
    assert host.run("stop", "pony").returncode == 0
    assert not lives(program)


def test_killed_keeper_is_replaced_without_restarting_the_program(host: Host, agent: Callable[[], None]) -> None:
    agent()
    host.run("start", "pony")
    first, keeper = host.pid(), host.keeper()
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: host.keeper() != keeper and lives(host.keeper()))
    assert host.pid() == first
    assert len(host.lines("starts")) == 1
    os.kill(first, signal.SIGKILL)  # the new one looks after it
    eventually(lambda: host.pid() not in (0, first))


def test_killed_keeper_and_program_restart_once_and_stopped_unit_stays_stopped(
    host: Host, agent: Callable[[], None]
) -> None:
    agent()
    host.put("etc/systemd/system/other.service", "[Service]\nExecStart=/bin/sleep 1000\n")
    host.run("start", "pony")
    host.run("enable", "--now", "other")
    host.run("stop", "other")
    first = host.pid()
    os.kill(host.keeper(), signal.SIGKILL)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(host.lines("starts")) > 1)
    eventually(lambda: host.run("is-active", "pony").stdout == "active\n")
    assert len(host.lines("starts")) == 2
    assert host.run("is-active", "other").stdout == "inactive\n"


def test_resume_does_not_start_stopped_unit(host: Host) -> None:
    host.put("etc/systemd/system/other.service", "[Service]\nExecStart=/bin/sleep 1000\n")
    host.run("start", "other")
    host.run("stop", "other")
    assert host.run("resume", "other").returncode == 0
    assert host.run("is-active", "other").stdout == "inactive\n"


def test_keeper_of_stopped_unit_starts_nothing(host: Host) -> None:
    host.run("start", "pony")
    host.run("stop", "pony")
    keep = [sys.executable, str(host.agent), "keep", "--root", str(host.root), "pony.service"]
    assert subprocess.run(keep, timeout=LIMIT_SECONDS, check=False).returncode == 0
    assert len(host.lines("starts")) == 1


def test_enabled_unit_starts_at_boot(host: Host, agent: Callable[[], None]) -> None:
    host.run("enable", "pony")
    assert host.run("is-enabled", "pony").stdout == "enabled\n"
    agent()  # for the first time since the machine was started
    eventually(lambda: host.run("is-active", "pony").stdout == "active\n")
    host.run("disable", "pony")
    disabled = host.run("is-enabled", "pony")
    assert (disabled.stdout, disabled.returncode) == ("disabled\n", 1)


def test_oneshot_start_waits_for_completion(host: Host) -> None:
    host.put("etc/systemd/system/once.service", "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo done'\n")
    assert host.run("start", "once").returncode == 0
    assert host.run("is-active", "once").stdout == "inactive\n"
    assert (host.root / "var/log/once.log").read_text() == "done\n"


def test_unit_stop_kills_child_processes(host: Host) -> None:
    script = "sleep 1000 & echo $! > $REMUDA_HOST_ROOT/child; sleep 1000"
    host.put("etc/systemd/system/herd.service", f'[Service]\nExecStart=/bin/sh -c "{script.replace("$", "$$")}"\n')
    host.run("start", "herd")
    eventually(lambda: host.lines("child"))
    child = int(host.lines("child")[0])
    host.run("stop", "herd")
    eventually(lambda: not lives(child))


@pytest.mark.parametrize(
    ("words", "code"),
    [(("start", "none"), 5), (("stop", "none"), 5), (("dance", "pony"), 1), (("start", "../x"), 1), (("start",), 1)],
)
def test_invalid_systemctl_command_fails_with_exit_code_and_message(
    host: Host, words: tuple[str, ...], code: int
) -> None:
    refused = host.run(*words)
    assert refused.returncode == code
    assert refused.stderr
    assert "Traceback" not in refused.stderr
