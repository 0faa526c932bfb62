"""The driver process: conformant, and its hosts are real processes that end when they should and only then."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from remuda.lab.driver_conformance.worker import Worker, WorkerRequest
from remuda.providers.bootstrap.assets import agent_zipapp
from remuda.providers.shared.drivers import proc, process
from remuda.providers.shared.drivers.process.host import NETWORK, Details, Hosts, NameTaken
from remuda.providers.shared.drivers.spi import TAG_MACHINE, TAG_OWNER, TAG_UID, DriverError, Order
from tests.lab.conformance import Conformance
from tests.lab.drivers import Processes, processes_below

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="process hosts need Linux")

IN_BACKGROUND = "</dev/null >/dev/null 2>&1 &"


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.end()


class TestConformance(Conformance):
    pass


async def host_of(subject: Processes, script: str, **changes: object) -> tuple[Order, Path]:
    order = subject.order(**changes)
    await subject.act(order).create(order, f"#!/bin/sh\n{script}\n".encode())
    return order, subject.hosts / "process" / order.name


async def remove(subject: Processes, order: Order) -> None:
    await subject.act(order).remove(order)
    assert await subject.things() == []


async def test_host_gets_its_own_environment_and_none_of_job(
    subject: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/secret")
    order, folder = await host_of(subject, f"env >env; pwd >pwd; sleep 1000 {IN_BACKGROUND}", hostname="first")
    told = dict(line.split("=", 1) for line in (folder / "root" / "env").read_text().splitlines())
    server = await subject.act(order).find(order)
    assert server is not None
    assert told["REMUDA_HOST_ROOT"] == str(folder / "root") == (folder / "root" / "pwd").read_text().strip()
    assert told["REMUDA_HOST_ADDRESS"] == server.addresses[0].address
    assert told["HOSTNAME"] == server.addresses[1].address == "first"
    assert Path(told["HOME"]).is_dir()
    assert Path(told["TMPDIR"]).is_dir()
    assert "KUBECONFIG" not in told
    assert (folder / "script").stat().st_mode & 0o777 == 0o700
    assert (folder / "script.log").stat().st_mode & 0o777 == 0o600
    assert folder.parent.stat().st_mode & 0o777 == 0o700


async def test_host_does_not_inherit_job_resource_limits(subject: Processes) -> None:
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, most))
    try:
        _, folder = await host_of(subject, f"ulimit -S -d >soft; ulimit -H -d >hard; sleep 1000 {IN_BACKGROUND}")
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))
    assert (folder / "root" / "soft").read_text() == (folder / "root" / "hard").read_text()


async def test_real_agent_runs_until_host_is_removed(subject: Processes) -> None:
    agent = subject.directory / "remuda-agent.pyz"
    agent.write_bytes(agent_zipapp())
    script = f"CATTLE_REMOTE_ENABLED=false CATTLE_LOCAL_ENABLED=true exec {sys.executable} {agent} install"
    order, folder = await host_of(subject, script)
    found = await subject.act(order).find(order)
    assert found is not None
    assert found.state == "running"
    assert "remuda-agent: the agent is installed and running" in subject.said
    assert len(proc.members(folder / "root")) >= 2  # the supervisor, and whom it supervises
    await remove(subject, order)


async def test_script_output_is_logged_and_ends_failure_message(subject: Processes) -> None:
    with pytest.raises(DriverError, match=r"ended with 7\. Last output: one / the server says 401$"):
        await host_of(subject, "echo one; echo the server says 401 >&2; exit 7")
    assert subject.said[-2:] == ["one", "the server says 401"]


async def test_failed_script_is_rerun_with_new_content(subject: Processes) -> None:
    order = subject.order()
    with pytest.raises(DriverError, match=r"ended with 1\. It printed nothing"):
        await subject.act(order).create(order, b"#!/bin/sh\nexit 1\n")
    found = await subject.act(order).find(order)
    assert found is not None
    assert found.state == "failed"
    better = f"#!/bin/sh\nsleep 1000 {IN_BACKGROUND}\n".encode()
    assert (await subject.act(order).create(order, better)).state == "running"


async def test_script_that_leaves_no_process_fails(subject: Processes) -> None:
    with pytest.raises(DriverError, match="succeeded, but left no process running"):
        await host_of(subject, "exit 0")


async def test_script_timeout_is_reported(subject: Processes) -> None:
    for seconds in (1, 10, 100):  # on a slow machine it may have said nothing by then
        with pytest.raises(DriverError, match=rf"is still running after {seconds} s \(timeoutSeconds\)\. ") as told:
            await host_of(subject, "echo waiting; sleep 1000", options={"timeoutSeconds": seconds})
        if "Last output: waiting" in str(told.value):
            break
    assert "Last output: waiting" in str(told.value)


async def test_killed_job_leaves_script_running_for_next_job(subject: Processes) -> None:
    gate = subject.directory / "gate"
    os.mkfifo(gate)
    script = f"#!/bin/sh\necho begun >>{subject.directory}/begun\ncat {gate}\nsleep 1000 {IN_BACKGROUND}\n"
    order, worker = subject.order(), await Worker.start()
    request = WorkerRequest(
        driver="remuda.providers.shared.drivers.process:Process",
        action="create",
        order=order,
        user_data=script.encode(),
        credentials={},
        directory=str(subject.hosts),
        record=str(subject.directory / "record"),
        answer=str(subject.directory / "answer"),
        crash_at=process.START.after,
    )
    assert (await worker.run(request)).killed
    await worker.stop()
    creating = asyncio.create_task(subject.act(order).create(order, script.encode()))
    opened = await asyncio.to_thread(gate.open, "w")  # waits for the script to read
    found = await subject.act(order).find(order)
    assert found is not None
    assert (found.state, creating.done()) == ("starting", False)
    opened.close()
    assert (await creating).state == "running"
    assert (subject.directory / "begun").read_text() == "begun\n"


async def test_stopped_host_is_started_again_by_create(subject: Processes) -> None:
    order, _ = await host_of(subject, f"sleep 1000 {IN_BACKGROUND}")
    subject.end()
    while processes_below(subject.hosts):
        await asyncio.sleep(0.01)
    found = await subject.act(order).find(order)
    assert found is not None
    assert found.state == "stopped"
    assert (await subject.act(order).create(order, subject.user_data)).state == "running"


async def test_user_data_that_is_no_script_is_rejected(subject: Processes) -> None:
    order = subject.order()
    with pytest.raises(DriverError, match="needs a script"):
        await subject.act(order).create(order, b"#cloud-config\n")
    assert await subject.things() == []


async def test_process_ignoring_sigterm_is_killed(subject: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_GRACE_SECONDS", 0.3)
    script = f"(trap '' TERM; : >$REMUDA_HOST_ROOT/deaf; while :; do sleep 0.05; done) {IN_BACKGROUND}"
    order, folder = await host_of(subject, script)
    while not (folder / "root" / "deaf").exists():
        await asyncio.sleep(0.01)
    await remove(subject, order)
    assert any("that ignored SIGTERM" in line for line in subject.said)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


async def test_process_without_environment_is_ended(subject: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_GRACE_SECONDS", 0.3)
    deaf = f"env -i /bin/sh -c 'trap \"\" TERM; : >deaf; while :; do sleep 0.05; done' {IN_BACKGROUND}"
    order, folder = await host_of(subject, f"{deaf}\nsleep 1000 {IN_BACKGROUND}\necho $! >pid")
    root = folder / "root"
    while not (root / "deaf").exists():
        await asyncio.sleep(0.01)
    (told,) = processes_below(subject.hosts)
    found = proc.members(root)
    assert told == int((root / "pid").read_text())
    assert len(found) >= 2
    await remove(subject, order)
    assert [pid for pid in found if lives(pid)] == []


async def test_remove_waits_for_starting_script_and_ends_script(subject: Processes) -> None:
    """A Job killed while it starts the script leaves a process that holds the lock and tells nothing of itself."""
    order, folder = await host_of(subject, f"sleep 1000 {IN_BACKGROUND}")
    late = f"flock 9; echo held; read line; REMUDA_HOST_ROOT={folder}/root exec sleep 1000"
    starter = subprocess.Popen(
        ["/bin/sh", "-c", f"exec 9>{folder}/script.lock; {late}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    await asyncio.to_thread(starter.stdout.readline)
    removing = asyncio.create_task(subject.act(order).remove(order))
    while len(proc.members(folder / "root")):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    assert not removing.done()
    starter.stdin.write(b"go\n")
    starter.stdin.close()
    await removing
    starter.stdout.close()
    assert starter.wait() == -signal.SIGTERM
    assert await subject.things() == []


async def test_remove_spares_foreign_shell_in_host_folder(subject: Processes) -> None:
    order, folder = await host_of(subject, f"sleep 1000 {IN_BACKGROUND}")
    root = folder / "root"
    script = f"REMUDA_HOST_ROOT={root} sleep 1000 & echo ready; read line"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", script], cwd=root, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert shell.stdout is not None
        await asyncio.to_thread(shell.stdout.readline)
        while len(processes_below(subject.hosts)) < 2:
            await asyncio.sleep(0.01)
        await subject.act(order).remove(order)
        assert processes_below(subject.hosts) == []
        assert shell.poll() is None
    finally:
        shell.kill()
        shell.communicate()


async def test_reused_pid_is_not_signalled(subject: Processes) -> None:
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        proc._signal(proc._Process(other.pid, 1, other.pid, "12", True), signal.SIGKILL)
        time.sleep(0.1)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


async def test_read_only_directories_and_links_are_removed_and_links_not_followed(subject: Processes) -> None:
    precious = subject.directory / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    script = f"mkdir -p a/b; touch a/b/c; chmod 500 a/b a; ln -s {precious} link; sleep 1000 {IN_BACKGROUND}"
    order, _ = await host_of(subject, script)
    await remove(subject, order)
    assert (precious / "file").read_text() == "kept"


def details(name: str, *, owner: str = "us", address: str = "") -> Details:
    tags = {TAG_UID: name, TAG_OWNER: owner, TAG_MACHINE: f"default/{name}"}
    return Details(name=name, hostname=name, address=address, tags=tags)


def test_address_is_derived_from_name_and_owner_and_unique(tmp_path: Path) -> None:
    first, again = Hosts(tmp_path / "a"), Hosts(tmp_path / "b")
    address = first.claim(details("one"), NETWORK).address
    assert address.startswith("127.")
    assert again.claim(details("one"), NETWORK).address == address
    assert again.claim(details("two", owner="others"), NETWORK).address != address
    tight = ipaddress.IPv4Network("127.64.0.0/29")  # six
    many = Hosts(tmp_path / "c")
    found = [many.claim(details(f"host-{number}"), tight).address for number in range(6)]
    assert sorted(found) == [f"127.64.0.{number}" for number in range(1, 7)]
    with pytest.raises(NameTaken, match=r"no free address left in 127\.64\.0\.0/29"):
        many.claim(details("host-6"), tight)


def test_requested_address_belongs_to_one_host(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    assert hosts.claim(details("one", address="127.0.0.9"), NETWORK).address == "127.0.0.9"
    with pytest.raises(NameTaken, match=r"127\.0\.0\.9 belongs to another host"):
        hosts.claim(details("two", address="127.0.0.9"), NETWORK)


async def test_host_name_cannot_escape_directory(subject: Processes) -> None:
    for name in ("../out", "a/b", ".", "", "-x"):
        order = msgspec.structs.replace(subject.order(), name=name)
        for act in (subject.act(order).check(order), subject.act(order).remove(order), subject.act(order).find(order)):
            with pytest.raises(DriverError, match="is not a valid host name"):
                await act


async def test_create_requires_linux(subject: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "_PROC", Path("/nowhere"))
    order = subject.order()
    with pytest.raises(DriverError, match="process hosts need Linux"):
        await subject.act(order).create(order, subject.user_data)
