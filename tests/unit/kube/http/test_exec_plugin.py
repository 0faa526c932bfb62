"""Credential plugins, as small real programs."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remuda.kube import clock
from remuda.kube.http.exec_plugin import PluginCredentials
from remuda.kube.kubeconfig import ExecPlugin, KubeconfigError
from tests.lab.limits import LIMIT_SECONDS

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


class Program:
    """A plugin that notes each run and prints what `answer` holds."""

    def __init__(self, folder: Path) -> None:
        self.answer, self._runs, self.path = folder / "answer", folder / "runs", folder / "plugin"
        self.exec_info = folder / "told"
        self.script(
            f"import os, sys\nopen({str(self._runs)!r}, 'a').write('.')\n"
            f"open({str(self.exec_info)!r}, 'w').write(os.environ['KUBERNETES_EXEC_INFO'] + ' '.join(sys.argv[1:])"
            " + os.environ.get('REGION', '') + repr(sys.stdin.read()))\n"
            f"print(open({str(self.answer)!r}).read())\n"
        )

    def script(self, text: str) -> None:
        self.path.write_text(f"#!{sys.executable} -SsE\n{text}")
        self.path.chmod(self.path.stat().st_mode | stat.S_IXUSR)

    def prints(self, *, version: str = V1, kind: str = "ExecCredential", **status: Any) -> None:
        self.answer.write_bytes(msgspec.json.encode({"kind": kind, "apiVersion": version, "status": status}))

    @property
    def runs(self) -> int:
        return len(self._runs.read_text()) if self._runs.exists() else 0

    def credentials(
        self, *, version: str = V1, timeout_seconds: float = LIMIT_SECONDS, **more: Any
    ) -> PluginCredentials:
        plugin = ExecPlugin(api_version=version, command=str(self.path), **more)
        return PluginCredentials(plugin, "FILE (context 'x')", timeout_seconds=timeout_seconds)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


class Time:
    now = 1_000_000.0


@pytest.fixture
def time() -> Iterator[Time]:
    moment = Time()
    clock.use(lambda: moment.now)
    yield moment
    clock.use(None)


async def refusal(credentials: PluginCredentials) -> str:
    with pytest.raises(KubeconfigError) as caught:
        await credentials.current()
    assert "of FILE (context 'x')" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_exec_plugin_runs_once_for_concurrent_callers(program: Program, version: str) -> None:
    program.prints(version=version, token="t")
    credentials = program.credentials(version=version)
    found = await asyncio.gather(*(credentials.current() for _ in range(5)))
    assert {one.token for one in found} == {"t"}
    assert program.runs == 1


async def test_exec_plugin_receives_args_env_and_cluster_info(program: Program) -> None:
    program.prints(token="t")
    info = {"server": "https://c", "config": None}
    await program.credentials(args=("a", "b"), env={"REGION": "eu"}, cluster_info=info).current()
    expected = {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False, "cluster": info}}
    assert program.exec_info.read_text() == f"{msgspec.json.encode(expected).decode()}a beu''"


async def test_exec_plugin_can_return_a_client_certificate(program: Program) -> None:
    program.prints(clientCertificateData="C", clientKeyData="K")
    found = await program.credentials().current()
    assert (found.token, found.certificate_pem, found.key_pem) == ("", b"C", b"K")


async def test_exec_plugin_runs_again_shortly_before_expiry(program: Program, time: Time) -> None:
    program.prints(token="old", expirationTimestamp=clock.rfc3339(time.now + 3600))
    credentials = program.credentials()
    await credentials.current()
    program.prints(token="new")
    time.now += 3539
    assert (await credentials.current()).token == "old"
    time.now += 1
    assert (await credentials.current()).token == "new"
    time.now += 1e9
    await credentials.current()
    assert program.runs == 2


async def test_short_lived_exec_credential_is_cached_until_near_expiry(program: Program, time: Time) -> None:
    program.prints(token="t", expirationTimestamp=clock.rfc3339(time.now + 20))
    credentials = program.credentials()
    for _ in range(2):
        await credentials.current()
        time.now += 17.9
    assert program.runs == 1
    await credentials.current()
    assert program.runs == 2


async def test_exec_plugin_runs_again_when_server_rejects_credential(program: Program, time: Time) -> None:
    program.prints(token="old")
    credentials = program.credentials()
    await credentials.current()
    assert not credentials.discard("old", b"")  # a moment ago: it would say the same
    time.now += 10
    program.prints(token="new")
    assert credentials.discard("old", b"a certificate of the kubeconfig")
    assert (await credentials.current()).token == "new"
    assert credentials.discard("old", b"")  # somebody else's request, sent before
    assert (await credentials.current()).token == "new"
    assert program.runs == 2


async def test_failing_exec_plugin_error_includes_stderr(program: Program) -> None:
    program.script("import sys\nsys.stderr.write('log in\\n  first')\nsys.exit(3)\n")
    assert "exited with code 3: log in first" in await refusal(program.credentials())


async def test_missing_exec_plugin_error_includes_install_hint() -> None:
    plugin = ExecPlugin(api_version=V1, command="no-such-plugin", install_hint="brew install it\n")
    said = await refusal(PluginCredentials(plugin, "FILE (context 'x')"))
    assert said.endswith("is not installed\nbrew install it")


async def test_non_executable_exec_plugin_reports_permission_denied(program: Program) -> None:
    program.path.chmod(0o600)
    assert "cannot be started: Permission denied" in await refusal(program.credentials(install_hint="chmod"))


async def test_hanging_exec_plugin_is_killed_with_its_children(program: Program, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program.path.write_text(f"#!/bin/sh\nsleep 1000 &\necho $! >{pid}\nwait\n")
    for seconds in (0.5, 5, 50, 500):  # on a slow machine it may be ended before it has started anything
        said = await refusal(program.credentials(timeout_seconds=seconds))
        assert f"did not finish within {seconds:g} seconds" in said
        if pid.exists() and pid.read_text().endswith("\n"):
            break
    await _until_gone(int(pid.read_text()))


async def _until_gone(pid: int) -> None:
    """Killed is not dead at once: a machine with much else to do takes a moment."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not _is_gone(pid):
            await asyncio.sleep(0.01)


def _is_gone(pid: int) -> bool:
    """Nothing of it runs, though whoever inherits it may not have buried it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return not os.path.exists(f"/proc/{pid}")


async def test_cancelling_kills_the_exec_plugin(program: Program, tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    program.script(f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)\n")
    waiting = asyncio.create_task(program.credentials().current())
    pid = int(await asyncio.to_thread(started.read_text))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await _until_gone(pid)


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ({"token": "secret", "version": V1BETA1}, f"printed ExecCredential {V1BETA1}, not ExecCredential {V1}"),
        ({"token": "secret", "kind": "Secret"}, "printed Secret"),
        ({}, "neither a token nor a certificate"),
        ({"clientCertificateData": "C"}, "a certificate without its key"),
        ({"token": "secret", "expirationTimestamp": "tomorrow"}, "invalid expirationTimestamp: 'tomorrow'"),
        ({"token": 5}, "did not print an ExecCredential"),
    ],
)
async def test_invalid_exec_plugin_output_is_rejected_without_showing_secrets(
    program: Program, printed: dict[str, Any], said: str
) -> None:
    program.prints(**printed)
    found = await refusal(program.credentials())
    assert said in found
    assert "secret" not in found.split("'x')")[1]


async def test_non_json_exec_plugin_output_is_not_shown_in_error(program: Program) -> None:
    program.answer.write_text("password: hush")
    assert "hush" not in await refusal(program.credentials())
