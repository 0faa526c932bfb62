"""Ending: watches end whole, what is under way is answered, and the process leaves at once with 0."""

from __future__ import annotations

import http.client
import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Launch
from tests.e2e.program import Running, begin, configmap, terminate
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.server import end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_open_watches_end_with_their_last_chunk(data: Path, launch: Launch, number: int) -> None:
    server = launch(data)
    watches = [open_watch(server) for _ in range(20)]
    server.create("seen")
    code, said = server.signal(number)
    assert (code, said, server.complaints) == (0, "", ""), "it complains of what does not end by itself"
    for connection, response in watches:
        lines = [json.loads(line) for line in response.read().splitlines()]  # raises when the last chunk is missing
        assert [line["object"]["metadata"]["name"] for line in lines if line["type"] == "ADDED"] == ["seen"]
        assert not [line for line in lines if line["type"] == "ERROR"]
        connection.close()


def open_watch(server: Running) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
    connection = server.connect()
    connection.request("GET", "/api/v1/namespaces/default/configmaps?watch=1")
    return connection, connection.getresponse()


def begin_request(server: Running, length: int) -> http.client.HTTPSConnection:
    """A request whose head the server has read, and whose body it waits for."""
    connection = server.connect()
    connection.putrequest("POST", "/api/v1/namespaces/default/configmaps")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(length))
    connection.putheader("Expect", "100-continue")
    connection.endheaders()
    assert connection.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    return connection


def wait_until_refused(server: Running) -> None:
    """Wait until the server has begun to end: it accepts no connections any more."""
    while True:
        try:
            server.connect().close()
        except OSError:  # refused, or dropped by a listener that is being closed
            return


def test_in_flight_request_is_answered_during_shutdown(data: Path, launch: Launch) -> None:
    body = json.dumps(configmap("late")).encode()
    for _ in range(5):
        server = launch(data)
        connection = begin_request(server, len(body))
        connection.send(body[:20])
        os.kill(server.pid, signal.SIGTERM)
        wait_until_refused(server)
        try:
            connection.send(body[20:])
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException):
            server.process.wait(LIMIT_SECONDS)
            # A slow machine may keep this process from sending until the server has stopped to wait for it.
            assert "did not end within" in server.complaints
            continue
        break
    assert answer.status == 201
    assert answer.headers["Connection"] == "close"
    answer.read()
    assert server.process.wait(LIMIT_SECONDS) == 0
    assert launch(data).names() >= {"late"}


def test_idle_client_does_not_delay_shutdown_for_long(data: Path, launch: Launch) -> None:
    server = launch(data)
    connection = begin_request(server, 100)
    code, _ = server.signal(signal.SIGTERM)
    assert code == 0
    assert "did not end within" in server.complaints
    connection.close()


def test_connections_are_refused_after_shutdown(data: Path, launch: Launch) -> None:
    server = launch(data)
    terminate(server)
    with pytest.raises(ConnectionRefusedError):
        server.connect()


def test_signal_during_startup_is_obeyed_and_next_start_works(data: Path) -> None:
    """Wherever it strikes, the next start works."""
    for delay in (0.05, 0.2, 0.4, 0.6, 0.8, 1.0):
        process = begin("apiserver", "--data-dir", data, "--listen", "127.0.0.1:0", log=data.with_name("log"))
        time.sleep(delay)
        process.terminate()
        try:
            process.wait(LIMIT_SECONDS)
        finally:
            end(process)
            assert process.stdout is not None
            process.stdout.close()
    assert "Traceback" not in data.with_name("log").read_text()
    server = Running(data)
    try:
        assert server.http("GET", "/readyz").code == 200
        terminate(server)
    finally:
        server.stop()


def test_database_is_single_file_after_shutdown(data: Path, launch: Launch) -> None:
    server = launch(data)
    server.create("something")
    terminate(server)
    left = {path.name for path in data.iterdir() if not path.name.startswith("lab-")}
    assert left == {"admin.kubeconfig", "lock", "pki", "reserve", "state.db"}
