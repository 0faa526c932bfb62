"""Backup and restore: a server on another machine that its clients cannot tell from the first."""

from __future__ import annotations

import os
import shutil
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Launch
from tests.e2e.program import Running, begin, configmap, mode, run, serving, terminate
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.server import Server

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


class Writing:
    """Creates, one after the other; `acknowledged` grows with each answer."""

    def __init__(self, server: Running) -> None:
        self.acknowledged: list[str] = []
        self.failures: list[object] = []
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        mine = Server(self._server.kubeconfig)  # a connection of its own
        number = 0
        while not self._stop.is_set():
            number += 1
            reply = mine.http("POST", CONFIGMAPS, configmap(f"under-load-{number}", text="x" * 2000))
            if reply.code == 201:
                self.acknowledged.append(f"under-load-{number}")
            else:
                self.failures.append(reply)
        mine.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def writing(server: Running) -> Iterator[Writing]:
    load = Writing(server)
    try:
        yield load
    finally:
        load.stop()


def test_backup_taken_under_load_restores_a_working_server(tmp_path: Path, launch: Launch) -> None:
    first = launch(tmp_path / "first")
    token = issue_token(first)
    file = tmp_path / "saved.tar"
    with writing(first) as load:
        wait_for(lambda: len(load.acknowledged) >= 100)
        before = set(load.acknowledged)
        saved = run("backup", first.data, file)
        assert (saved.code, saved.err) == (0, "")
        wait_for(lambda: len(load.acknowledged) > len(before) + 20)
    assert load.failures == []
    assert str(file) in saved.out
    assert mode(file) == 0o600
    seen = first.http("GET", CONFIGMAPS).body["metadata"]["resourceVersion"]
    port = first.url.rpartition(":")[2]
    terminate(first)
    shutil.rmtree(first.data / "pki")  # the first machine is lost

    restored = run("restore", file, tmp_path / "second")
    assert (restored.code, restored.err) == (0, "")
    assert mode(tmp_path / "second") == 0o700
    second = launch(tmp_path / "second", "--listen", f"127.0.0.1:{port}")
    assert before <= second.names() <= set(load.acknowledged)
    assert first.http("GET", CONFIGMAPS).code == 200  # the old kubeconfig: same authority, same admin
    assert first.http("GET", "/api/v1/namespaces", token=token).code == 403  # known, though it may do nothing
    assert_must_list_anew(first, seen)


def issue_token(server: Running) -> str:
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    issued = server.http("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    assert issued.code == 201, issued
    return str(issued.body["status"]["token"])


def assert_must_list_anew(server: Running, seen: str) -> None:
    """Revisions from before never get a second meaning."""
    gone = server.http("GET", f"{CONFIGMAPS}?watch=1&resourceVersion={seen}&timeoutSeconds=60")
    lines = gone.content.splitlines()
    assert len(lines) == 1, gone
    assert b'"type":"ERROR"' in lines[0]
    assert b'"code":410' in lines[0]
    assert b'"reason":"Expired"' in lines[0]
    listed = server.http("GET", CONFIGMAPS).body["metadata"]["resourceVersion"]
    assert int(listed) > int(seen)
    resumed = server.http("GET", f"{CONFIGMAPS}?watch=1&resourceVersion={listed}&timeoutSeconds=1")
    assert (resumed.code, resumed.content) == (200, b"")


def wait_for(condition: Callable[[], bool], seconds: float = LIMIT_SECONDS) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of a server that has stopped, with something in it."""
    folder = tmp_path_factory.mktemp("saved")
    with serving(folder / "data") as server:
        for number in range(20):
            server.create(f"object-{number}", text="x" * 1000)
        terminate(server)
    ended = run("backup", folder / "data", folder / "saved.tar")
    assert ended.code == 0, ended
    return folder / "saved.tar"


def test_restore_accepts_empty_directory(saved: Path, data: Path, launch: Launch) -> None:
    data.mkdir()
    assert run("restore", saved, data).code == 0
    assert "object-19" in launch(data).names()


def test_restore_rejects_non_empty_directory_and_leaves_its_files(saved: Path, data: Path) -> None:
    data.mkdir()
    (data / "precious").write_text("mine")
    ended = run("restore", saved, data)
    assert (ended.code, ended.err) == (1, f"Error: {data} is not empty; restore into a new directory\n")
    assert [path.name for path in data.iterdir()] == ["precious"]


def test_restore_rejects_data_directory_of_running_server(saved: Path, data: Path, launch: Launch) -> None:
    server = launch(data)
    ended = run("restore", saved, data)
    assert ended.code == 1
    assert f"in use by process {server.pid}" in ended.err
    server.create("goes-on")


@pytest.mark.parametrize("where", [600, 0.3, 0.6, 0.95])
def test_damaged_backup_is_refused(saved: Path, tmp_path: Path, where: float) -> None:
    damaged = tmp_path / "damaged.tar"
    content = bytearray(saved.read_bytes())
    at = where if isinstance(where, int) else last_byte_of_a_member(saved, int(len(content) * where))
    content[at] ^= 0x20
    damaged.write_bytes(content)
    assert_not_restored(damaged, tmp_path)


def last_byte_of_a_member(archive: Path, near: int) -> int:
    """Not in the padding between members, where damage does no harm."""
    with tarfile.open(archive) as tar:
        ends = [member.offset_data + member.size - 1 for member in tar if member.size]
    return min(ends, key=lambda end: abs(end - near))


@pytest.mark.parametrize("keep", [0, 100, 5000, 0.5, 0.9])
def test_truncated_backup_is_rejected(saved: Path, tmp_path: Path, keep: float) -> None:
    cut = tmp_path / "cut.tar"
    content = saved.read_bytes()
    cut.write_bytes(content[: keep if isinstance(keep, int) else int(len(content) * keep)])
    assert_not_restored(cut, tmp_path)


def test_foreign_tar_file_is_rejected_as_backup(tmp_path: Path) -> None:
    other = tmp_path / "other.tar"
    with tarfile.open(other, "w") as tar:
        tar.add(__file__, "../../escaped")
    assert_not_restored(other, tmp_path)


def assert_not_restored(file: Path, folder: Path) -> None:
    ended = run("restore", file, folder / "new" / "data")
    assert ended.code == 1, ended
    assert ended.out == ""
    assert ended.err.startswith("Error: ")
    assert len(ended.err.splitlines()) == 1, ended
    assert not (folder / "new" / "data").exists()
    assert list((folder / "new").glob("*")) == []
    assert list((folder / "new").glob(".*")) == []


def test_backup_overwrites_existing_file_only_with_force(saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "saved.tar"
    target.write_text("precious")
    data = saved.parent / "data"
    refused = run("backup", data, target)
    assert (refused.code, refused.err) == (1, f"Error: {target} exists already\n")
    assert target.read_text() == "precious"
    assert run("backup", data, target, "--force").code == 0
    assert target.stat().st_size > 10_000


@pytest.mark.parametrize("file", ["none/saved.tar", "."])
def test_backup_to_unwritable_target_fails_without_traceback(saved: Path, tmp_path: Path, file: str) -> None:
    ended = run("backup", saved.parent / "data", tmp_path / file)
    assert ended.code in (1, 2)
    assert "Traceback" not in ended.err
    assert str(tmp_path) in ended.err
    assert list(tmp_path.iterdir()) == []


def test_backup_rejects_directory_without_state_db(tmp_path: Path) -> None:
    ended = run("backup", tmp_path, tmp_path / "saved.tar")
    assert (ended.code, ended.err) == (1, f"Error: {tmp_path} holds no state.db: not a data directory\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_backup_leaves_no_partial_file(tmp_path: Path, launch: Launch, number: int) -> None:
    server = launch(tmp_path / "data")
    for index in range(30):
        server.create(f"large-{index}", text="x" * 900_000)
    target = tmp_path / "target"
    target.mkdir()
    interrupted = 0
    for delay in (0.1, 0.2, 0.3, 0.4, 0.6):
        process = begin("backup", server.data, target / "saved.tar", log=tmp_path / "log")
        time.sleep(delay)
        os.kill(process.pid, number)
        code = process.wait(LIMIT_SECONDS)
        assert process.stdout is not None
        process.stdout.close()
        interrupted += code != 0
        if (target / "saved.tar").exists():  # it came too late: then the file is whole
            assert run("restore", target / "saved.tar", tmp_path / f"again-{delay}").code == 0
            (target / "saved.tar").unlink()
        assert [path.name for path in target.iterdir()] == [], f"after {delay} s"
    assert interrupted
    assert run("backup", server.data, target / "saved.tar").code == 0
    assert "large-29" in server.names()
