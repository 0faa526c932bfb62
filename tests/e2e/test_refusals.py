"""Starts that cannot be: one clear line, an exit code, no traceback, and nothing spoilt."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import Launch
from tests.e2e.program import COMMAND, Ended, run, serving, terminate
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port


def start(data: Path, *flags: str | Path) -> Ended:
    return run("apiserver", "--data-dir", data, "--listen", "127.0.0.1:0", *flags)


def assert_refused(ended: Ended, *said: str) -> None:
    """One line on stderr that says all of this."""
    assert ended.code == 1, ended
    assert ended.out == "", ended
    assert len(ended.err.splitlines()) == 1, ended
    assert ended.err.startswith("remuda apiserver: ")
    for words in said:
        assert words in ended.err


def assert_misused(ended: Ended, said: str) -> None:
    """What the command line itself can tell."""
    assert ended.code == 2, ended
    assert ended.out == "", ended
    assert said in ended.err.splitlines()[-1], ended
    assert "Traceback" not in ended.err


def test_second_server_on_same_data_directory_is_rejected(data: Path, launch: Launch) -> None:
    first = launch(data)
    kubeconfig = (data / "admin.kubeconfig").read_text()
    assert_refused(start(data), str(data), f"in use by process {first.pid}", "two servers cannot share")
    first.create("still-there")
    assert first.names() >= {"still-there"}
    assert (data / "admin.kubeconfig").read_text() == kubeconfig
    assert first.complaints == ""


def test_start_fails_when_port_is_in_use(data: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        assert_refused(run("apiserver", "--data-dir", data, "--listen", address), address, "Address already in use")
    assert not (data / "admin.kubeconfig").exists()
    with serving(data) as server:
        assert server.http("GET", "/readyz").code == 200


def test_start_fails_on_non_local_listen_address(data: Path) -> None:
    ended = run("apiserver", "--data-dir", data, "--listen", f"192.0.2.1:{free_port()}")
    assert_refused(ended, "192.0.2.1")


def test_start_fails_on_unresolvable_listen_host(data: Path) -> None:
    ended = run("apiserver", "--data-dir", data, "--listen", "no-such-host.invalid:0")
    assert_refused(ended, "no-such-host.invalid")


@pytest.mark.parametrize("listen", ["6443", "127.0.0.1", "127.0.0.1:", "127.0.0.1:https", "127.0.0.1:65536", "::1", ""])
def test_malformed_listen_address_is_usage_error(data: Path, listen: str) -> None:
    assert_misused(run("apiserver", "--data-dir", data, "--listen", listen), "is not HOST:PORT")
    assert not data.exists()


@pytest.mark.parametrize("name", ["no spaces", "-x", "ümlaut host", "a" * 300, "*", "*.*.example", "a..b"])
def test_invalid_tls_san_is_rejected(data: Path, name: str) -> None:
    assert_refused(start(data, f"--tls-san={name}"), f"{name!r} is neither a DNS name nor an IP address")
    assert not data.exists()


def test_file_as_data_directory_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert_misused(start(file), "is a file")
    assert_refused(start(file / "below"), f"cannot create the data directory {file / 'below'}", "Not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_data_directory_is_rejected(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert_refused(start(tmp_path), f"cannot use the data directory {tmp_path}", "Permission denied")
        assert_refused(start(tmp_path / "new"), "cannot create the data directory", "Permission denied")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("name", ["state.db", "lock", "pki", "admin.kubeconfig"])
def test_start_fails_when_data_directory_entry_has_wrong_type(data: Path, name: str) -> None:
    data.mkdir()
    if name == "pki":
        (data / name).touch()
    else:
        (data / name / "x").mkdir(parents=True)
    assert_refused(start(data), str(data))


@pytest.mark.parametrize("content", [b"garbage " * 4096, b"SQLite format 3\0" + b"\xff" * 8192, b"x"])
def test_garbage_state_db_is_rejected_and_left_unchanged(data: Path, content: bytes) -> None:
    data.mkdir()
    (data / "state.db").write_bytes(content)
    assert_refused(start(data), str(data / "state.db"))
    assert (data / "state.db").read_bytes() == content


def test_foreign_sqlite_database_is_rejected(data: Path) -> None:
    data.mkdir()
    other = sqlite3.connect(data / "state.db")
    other.execute("CREATE TABLE theirs (x)")
    other.commit()
    other.close()
    assert_refused(start(data), "is not a Remuda database")


def test_damaged_database_is_rejected_with_restore_advice(data: Path, launch: Launch) -> None:
    server = launch(data)
    for number in range(100):
        server.create(f"object-{number}", text="x" * 2000)
    terminate(server)
    with (data / "state.db").open("r+b") as file:
        file.seek(8192 * 3)
        file.write(os.urandom(8192 * 10))
    assert_refused(start(data), f"{data / 'state.db'} is damaged", "restore a backup into a new data directory")


@pytest.mark.parametrize("name", ["ca.key", "sa.key"])
def test_invalid_private_key_is_rejected_without_leaking_content(data: Path, launch: Launch, name: str) -> None:
    terminate(launch(data))
    (data / "pki" / name).write_text("-----BEGIN PRIVATE KEY-----\nsecret-text\n-----END PRIVATE KEY-----\n")
    ended = start(data)
    assert_refused(ended, f"{data / 'pki' / name} is not a private key")
    assert "secret-text" not in ended.err


def test_missing_ca_key_is_rejected_and_ca_certificate_kept(data: Path, launch: Launch) -> None:
    terminate(launch(data))
    certificate = (data / "pki" / "ca.crt").read_bytes()
    (data / "pki" / "ca.key").unlink()
    assert_refused(start(data), "ca.key is missing", "restore the key from a backup")
    assert (data / "pki" / "ca.crt").read_bytes() == certificate


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"just-a-token\n", "must have at least 3 columns"),
        (b"good,anna,1\nbad,ben\n", "record 2"),
        (b"\xff\xfe\x00hush,anna,1\n", "is not UTF-8"),
        (b'hush,"anna,1\n', "record 1"),
    ],
)
def test_malformed_token_file_is_rejected_without_leaking_tokens(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "tokens.csv"
    file.write_bytes(content)
    ended = start(tmp_path / "data", "--token-auth-file", file)
    assert_refused(ended, str(file), said)
    assert "hush" not in ended.err.replace(str(tmp_path), "")
    assert not (tmp_path / "data").exists()


def test_missing_token_file_is_usage_error(tmp_path: Path) -> None:
    assert_misused(start(tmp_path / "data", "--token-auth-file", tmp_path / "none.csv"), "does not exist")


def test_closed_stdout_ends_server_without_traceback(data: Path) -> None:
    """`remuda apiserver | head -0`: the ready line has nowhere to go."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [*COMMAND, "apiserver", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        try:
            _, said = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode != 0
    assert "Traceback" not in said
