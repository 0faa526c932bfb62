"""Commands find the server of a data directory, wait while it starts, and never trust an old process id."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from remuda.apiserver.storage.directory import LOCK, DirectoryLock
from remuda.app import server_record
from remuda.app.server_record import ServerRecord
from remuda.cli import local_server
from remuda.cli.connection import NoManagementPlane, connected
from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from tests.lab.ports import free_port

RECORD = ServerRecord(pid=os.getpid(), url="https://127.0.0.1:1", version="1", since="2026-11-18T00:00:00Z")
READY = ServerRecord(pid=os.getpid(), url="https://127.0.0.1:1", version="1", since="2026-11-18T00:00:00Z", ready=True)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[DirectoryLock]:
    held = DirectoryLock(tmp_path)
    yield held
    held.release()


def test_state_follows_lock_and_record(tmp_path: Path) -> None:
    assert server_record.find(tmp_path).state == "stopped"
    lock = DirectoryLock(tmp_path)
    assert server_record.find(tmp_path) == server_record.LocalServer(pid=os.getpid())
    server_record.write(tmp_path, RECORD)
    assert server_record.find(tmp_path).state == "starting"
    server_record.write(tmp_path, READY)
    assert server_record.find(tmp_path).state == "ready"
    lock.release()  # as if it were killed: the record and the process id remain
    assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
    assert server_record.find(tmp_path).state == "stopped"


def test_record_of_earlier_server_is_ignored(tmp_path: Path, lock: DirectoryLock) -> None:
    server_record.write(tmp_path, ServerRecord(pid=os.getppid(), url="", version="", since="", ready=True))
    assert server_record.find(tmp_path).state == "starting"


def test_record_of_earlier_server_with_same_process_id_is_ignored(tmp_path: Path, lock: DirectoryLock) -> None:
    """In a container, every server has the same process id."""
    server_record.write(tmp_path, READY)
    path = tmp_path / server_record.FILE
    earlier = msgspec.structs.replace(msgspec.json.decode(path.read_bytes(), type=ServerRecord), ticks=1)
    path.write_bytes(msgspec.json.encode(earlier))
    assert server_record.find(tmp_path).state == "starting"


def test_unwritable_record_does_not_stop_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server_record.write(tmp_path / "missing", READY)
    assert "cannot write" in caplog.text


def test_process_that_does_not_hold_the_lock_is_not_taken_for_its_holder(tmp_path: Path, lock: DirectoryLock) -> None:
    (tmp_path / LOCK).write_text(f"{os.getppid()}\n")
    assert server_record.find(tmp_path).state == "stopped"


def test_client_waits_with_a_note_until_server_is_ready(
    tmp_path: Path, lock: DirectoryLock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server_record.write(tmp_path, RECORD)
    noted = threading.Event()
    monkeypatch.setattr(local_server, "print_note", lambda text: (print(text), noted.set()))
    waiting = threading.Thread(target=local_server.wait_while_starting, args=(tmp_path,))
    waiting.start()
    noted.wait()
    assert waiting.is_alive()
    server_record.write(tmp_path, READY)
    waiting.join()
    assert capsys.readouterr().out == f"waiting for the server of {tmp_path}, which is starting\n"


def test_client_does_not_wait_for_ready_or_stopped_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local_server.wait_while_starting(tmp_path)
    lock = DirectoryLock(tmp_path)
    server_record.write(tmp_path, READY)
    local_server.wait_while_starting(tmp_path)
    lock.release()
    assert capsys.readouterr() == ("", "")


def test_wait_ends_after_its_limit(
    tmp_path: Path, lock: DirectoryLock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local_server, "_WAIT_SECONDS", 0.1)
    local_server.wait_while_starting(tmp_path)
    assert f"the server of {tmp_path} is not ready after 0 s\n" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [(), ("--data-dir", "remuda-data"), ("--data-dir=remuda-data",)])
def test_process_that_has_not_locked_its_data_directory_yet_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    """Right after `remuda up &`, Python still loads the program."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "remuda").write_text("import sys; print(flush=True); sys.stdin.read()")
    command = [sys.executable, "remuda", "up", *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        process.stdout.readline()
        assert local_server.is_starting(Path("remuda-data"))
        assert not local_server.is_starting(Path("other"))
        process.stdin.close()
    assert not local_server.is_starting(Path("remuda-data"))


def test_error_without_server_names_the_command_that_starts_it(tmp_path: Path) -> None:
    config = kubeconfig.build(f"https://127.0.0.1:{free_port()}", name="ranch")
    kubeconfig.write(tmp_path / "admin.kubeconfig", config)

    async def ask(client: HttpClient) -> None:
        await client.raw_get("/version")

    with pytest.raises(NoManagementPlane, match=f"Start it with: remuda up --detach --data-dir {tmp_path}"):
        connected(tmp_path / "admin.kubeconfig", ask)


def test_server_without_record_is_starting_only_until_it_accepts_connections(
    tmp_path: Path, lock: DirectoryLock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert local_server.is_starting(tmp_path)  # there is no kubeconfig yet
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = f"https://127.0.0.1:{listener.getsockname()[1]}"
        kubeconfig.write(tmp_path / local_server.ADMIN, kubeconfig.build(server))
        local_server.wait_while_starting(tmp_path)
    assert capsys.readouterr().err == ""
    assert local_server.is_starting(tmp_path)
