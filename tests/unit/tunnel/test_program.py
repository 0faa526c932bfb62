"""The tunnel's client as the program that runs on hosts: from the zipapp they download, with its file of settings."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from remuda.providers.bootstrap.assets import agent_zipapp
from remuda.tunnel import __main__, websocket_client
from remuda.tunnel.__main__ import ConfigError, load
from tests.lab.certificates import Authority, write
from tests.lab.pipes import pipe
from tests.unit.tunnel.conftest import TOKEN, WAIT, TunnelHarness, eventually


class Program:
    def __init__(
        self, harness: TunnelHarness, python: str = sys.executable, address: str = "", **changes: object
    ) -> None:
        folder = harness.folder
        self.status_file = folder / "status.json"
        self._log = folder / "client.log"
        self._token = folder / "token"
        self.write_token(TOKEN + "\n")
        (folder / "ca.pem").write_bytes(harness.authority.pem)
        (folder / "agent.pyz").write_bytes(agent_zipapp())
        self._settings = {
            "urls": [harness.url],
            "authorities": [str(folder / "ca.pem")],
            "token_file": str(self._token),
            "headers": {"X-Node": "roan"},
            "allow": ["tcp/127.0.0.1:*"],
            "status_file": str(self.status_file),
            "waits": {"first": 0.05, "longest": 0.2, "attempt": WAIT},
            **changes,
        }
        self._file = folder / "tunnel.json"
        self.change()
        environment = {**os.environ, **({"REMUDA_HOST_ADDRESS": address} if address else {})}
        command = [python, "-I", str(folder / "agent.pyz"), "tunnel", "--config", str(folder / "tunnel.json")]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder.parent, env=environment)

    def change(self, **changes: object) -> None:
        """Of its settings, in one moment."""
        self._settings |= changes
        _replace(self._file, json.dumps(self._settings))

    def write_token(self, token: str) -> None:
        _replace(self._token, token)

    def said(self) -> str:
        return self._log.read_text()

    def status(self) -> dict:
        return json.loads(self.status_file.read_text()) if self.status_file.exists() else {}

    async def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self.process.wait, WAIT)
        finally:
            self.process.kill()


def _replace(path: Path, content: str) -> None:
    """Write a file that another process may read at any moment, and must never find half written."""
    new = path.with_suffix(".new")
    new.write_text(content)
    new.replace(path)


def pythons() -> list[str]:
    beside = Path(sys.base_prefix).parent
    return [sys.executable, *(str(path) for path in sorted(beside.glob("3.9.*/bin/python3.9")))]


@pytest.mark.parametrize("python", pythons())
async def test_tunnel_client_runs_from_zipapp_and_exits_on_sigterm(harness: TunnelHarness, python: str) -> None:
    program = Program(harness, python)
    try:
        await eventually(lambda: harness.sessions.has("corral"))
        reader, writer = await harness.open(await harness.service(pipe))
        writer.write(b"hello")
        async with asyncio.timeout(WAIT):
            assert await reader.readexactly(5) == b"hello"
        writer.close()
        await eventually(lambda: program.status().get("connected_to") == harness.url)
        assert os.stat(program.status_file).st_mode & 0o777 == 0o600
    finally:
        code = await program.end()
    assert code == 0, program.said()
    await eventually(lambda: not harness.sessions.has("corral"))
    assert "the client is stopping" in harness.events[-1].reason
    assert TOKEN not in program.said()
    assert TOKEN not in program.status_file.read_text()


async def test_tunnel_client_reports_auth_failure_once_and_reloads_token(harness: TunnelHarness) -> None:
    program = Program(harness)
    program.write_token("stale")
    try:
        await eventually(lambda: harness.sessions.has("corral") or "401" in json.dumps(program.status()))
        if harness.sessions.has("corral"):  # it was faster than we
            harness.sessions.end_all("for a test")
            await eventually(lambda: "401" in json.dumps(program.status()))
        await eventually(lambda: program.status().get("attempts", 0) > 2)
        assert program.said().count("401") == 1  # the same trouble is said once
        program.write_token(TOKEN)
        await eventually(lambda: program.status().get("connected_to"))
        assert "401: failed authentication" in program.status()["last_disconnect_reason"]
    finally:
        await program.end()


async def test_tunnel_client_waits_until_local_port_accepts_connections(harness: TunnelHarness) -> None:
    with socket.socket() as taken:  # a port nobody listens at, and nobody else gets
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        program = Program(harness, wait_for=f"tcp/127.0.0.1:{port}")
        try:
            reason = f"nothing accepts connections at tcp/127.0.0.1:{port}: connection refused"
            await eventually(lambda: program.status().get("waiting_for") == reason)
            await eventually(lambda: reason in program.said())
            assert not harness.events
            taken.listen()
            await eventually(lambda: program.status().get("connected_to") == harness.url)
            assert program.status()["waiting_for"] == ""
            assert program.said().count(reason) == 1
        finally:
            assert await program.end() == 0, program.said()


async def test_tunnel_client_waits_until_local_https_endpoint_is_healthy(harness: TunnelHarness) -> None:
    answers = [b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /version HTTP/1.1\r\n")
        writer.write(answers[-1])
        writer.close()

    near = Authority("near")
    files = write(
        harness.folder, **dict(zip(("certificate", "key"), near.server("127.0.0.1"), strict=True)), near=near.pem
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files["certificate"], files["key"])
    server = await asyncio.start_server(answer, "127.77.0.2", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/version"
    program = Program(harness, address="127.77.0.2", wait_for=url, wait_for_authorities=["ca.pem"])
    try:
        await eventually(lambda: "cannot verify its certificate" in program.status().get("waiting_for", ""))
        program.change(wait_for_authorities=[files["near"].name])
        await eventually(lambda: program.status()["waiting_for"] == f"{url} answers 503 Service Unavailable")
        assert not harness.events
        answers.append(
            b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
        )  # who asks is not known there: it serves
        await eventually(lambda: program.status().get("connected_to") == harness.url)
        assert program.status()["waiting_for"] == ""
    finally:
        assert await program.end() == 0, program.said()
        server.close()


async def test_tunnel_client_exits_promptly_while_waiting_for_local_port(harness: TunnelHarness) -> None:
    program = Program(harness, wait_for="tcp/127.0.0.1:1")
    try:
        await eventually(lambda: program.status().get("waiting_for"))
    finally:
        assert await program.end() == 0


async def test_tunnel_client_maps_loopback_to_host_address(harness: TunnelHarness) -> None:
    """And names of files are relative to the file of settings."""
    server = await asyncio.start_server(pipe, "127.77.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    changes = {"token_file": "token", "authorities": ["ca.pem"], "status_file": "status.json"}
    rule = f"tcp/127.0.0.1:{port}"
    program = Program(harness, address="127.77.0.1", allow=[rule], wait_for=rule, **changes)
    try:
        await eventually(lambda: harness.sessions.has("corral"))
        reader, writer = await harness.open(f"127.0.0.1:{port}")
        writer.write(b"hello")
        async with asyncio.timeout(WAIT):
            assert await reader.readexactly(5) == b"hello"
        writer.close()
        await eventually(lambda: program.status().get("connected_to") == harness.url)
    finally:
        server.close()
        assert await program.end() == 0, program.said()


async def test_tunnel_client_exits_promptly_during_backoff(harness: TunnelHarness) -> None:
    program = Program(harness, urls=["wss://127.0.0.1:1/"], waits={"first": 1e6, "longest": 1e6})
    try:
        await eventually(lambda: program.status().get("attempts"))
    finally:
        assert await program.end() == 0


def test_blocked_event_loop_exits_the_process_with_a_traceback() -> None:
    stuck = (
        "import time; from remuda.tunnel import __main__ as m; "
        "m._WATCHDOG_SECONDS = 0.2; m._reset_watchdog(); time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", stuck], capture_output=True, text=True, timeout=WAIT)
    assert done.returncode == 1
    assert "Timeout" in done.stderr


async def test_tunnel_client_connects_through_https_proxy(
    harness: TunnelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        there, back = await asyncio.open_connection("127.0.0.1", harness.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pipe(reader, back), pipe(there, writer))

    address = await harness.service(proxy)
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@{address}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(websocket_client, "is_exempt", lambda *_: False)  # all of this is on one machine
    await harness.client()
    assert asked[0].startswith(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n" % harness.port)
    assert b"Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in asked[0]


async def test_proxy_rejection_is_reported_with_the_proxy_address(
    harness: TunnelHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        writer.close()

    address = await harness.service(proxy)
    monkeypatch.setenv("HTTPS_PROXY", address)
    monkeypatch.setattr(websocket_client, "is_exempt", lambda *_: False)
    client, _ = harness.start(harness.settings())
    await eventually(lambda: client.status.attempts > 0)
    assert f"proxy {address} answered 407" in client.status.last_disconnect_reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "urls must list at least one"),
        ('{"urls": "wss://a"}', "urls must be a JSON list"),
        ('{"urls": ["wss://a"], "token": "x"}', "unknown setting token"),
        ('{"urls": ["wss://a"], "allow": ["tcp"]}', "invalid allow rule"),
        ('{"urls": ["wss://a"], "allow": [1]}', "tunnel.json"),
        ('{"urls": ["wss://a"], "timing": {"ping_every": 0}}', "timing.ping_every: expected a positive number"),
        ('{"urls": ["wss://a"], "waits": {"often": 1}}', "waits.often"),
        ('{"urls": ["wss://a"], "wait_for": "127.0.0.1:6443"}', "wait_for: unknown network"),
    ],
)
def test_invalid_tunnel_settings_raise_config_error_with_reason(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "tunnel.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=reason):
        load(str(file))


def test_crash_is_recorded_before_the_main_thread_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    recorded: list[bool] = []

    class Crashing:
        def run(self) -> None:
            raise RuntimeError("a defect")

    monkeypatch.setattr(signal, "pthread_kill", lambda thread, number: recorded.append(ended.is_set()))
    with pytest.raises(RuntimeError):
        __main__._run(Crashing(), ended)  # type: ignore[arg-type]
    assert recorded == [True]
