"""Credentials from an exec plugin (`client.authentication.k8s.io`), cached until they are about to expire.

The plugin gets no terminal. It runs outside the event loop, with a timeout, and once for all requests that wait for it.
Its credentials are used until shortly before they expire, or until the server rejects them; a server that rejects all
credentials does not make the plugin run for every request.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process

import msgspec

from remuda.kube import clock
from remuda.kube.kubeconfig import ExecPlugin, KubeconfigError

TIMEOUT_SECONDS = 60.0
_EARLY_SECONDS = 60.0  # seconds before the expiry, at most
_EARLY_SHARE = 0.1  # share of their lifetime
_SECONDS_BETWEEN_REFUSALS = 5.0
_MOST_SHOWN = 1000


class ExecCredentials(msgspec.Struct, frozen=True):
    token: str = ""
    certificate_pem: bytes = b""
    key_pem: bytes = b""
    renew_at: float | None = None  # seconds since the epoch


class _Printed(msgspec.Struct, rename="camel"):
    class Status(msgspec.Struct, rename="camel"):
        expiration_timestamp: str | None = None
        token: str = ""
        client_certificate_data: str = ""
        client_key_data: str = ""

    kind: str = ""
    api_version: str = ""
    status: Status | None = None


class PluginCredentials:
    def __init__(self, plugin: ExecPlugin, origin: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._plugin = plugin
        self._origin = origin
        self._timeout_seconds = timeout_seconds
        self._known: ExecCredentials | None = None
        self._ran_at = 0.0
        self._lock = asyncio.Lock()

    async def current(self) -> ExecCredentials:
        known = self._fresh()
        if known is not None:
            return known
        async with self._lock:
            known = self._fresh()  # another request may have fetched them
            if known is None:
                known = self._known = await self._run()
                self._ran_at = clock.time()
            return known

    def _fresh(self) -> ExecCredentials | None:
        known = self._known
        if known is None or (known.renew_at is not None and clock.time() >= known.renew_at):
            return None
        return known

    def discard(self, token: str, certificate_pem: bytes) -> bool:
        """Discard credentials that the server refused. Return whether the plugin should run again, or already has."""
        known = self._known
        # Another request has discarded these credentials, or has fetched new ones: the caller may try again.
        if known is None or known.token != token or known.certificate_pem not in (b"", certificate_pem):
            return True
        # The plugin has just run. A server that refuses fresh credentials must not make it run for each request.
        if clock.time() - self._ran_at < _SECONDS_BETWEEN_REFUSALS:
            return False
        self._known = None
        return True

    async def _run(self) -> ExecCredentials:
        process = await self._start()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                output, errors = await process.communicate()
        except TimeoutError:
            raise self._failed(f"did not finish within {self._timeout_seconds:g} seconds") from None
        finally:
            await _end(process)
        if process.returncode:
            message = " ".join(errors[-_MOST_SHOWN:].decode("utf-8", "replace").split())
            raise self._failed(f"exited with code {process.returncode}" + (f": {message}" if message else ""))
        return self._read(output)

    async def _start(self) -> Process:
        plugin = self._plugin
        environ = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": exec_info(plugin).decode()}
        try:
            return await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env=environ,
                start_new_session=True,  # its child processes end with it, and no signal of our terminal reaches it
            )
        except FileNotFoundError:
            raise self._failed("is not installed", hint=True) from None
        except OSError as error:
            # If a folder of the PATH cannot be read, the system reports a missing program as forbidden.
            found = shutil.which(plugin.command, os.F_OK, environ.get("PATH"))
            forbidden = found is not None or not isinstance(error, PermissionError)
            why = f"cannot be started: {error.strerror}" if forbidden else "is not installed"
            raise self._failed(why, hint=True) from None

    def _read(self, output: bytes) -> ExecCredentials:
        """Parse the printed ExecCredential. The output is secret, so errors never quote it."""
        try:
            printed = msgspec.json.decode(output, type=_Printed)
        except msgspec.MsgspecError:
            raise self._failed("did not print an ExecCredential in JSON") from None
        status, wanted = printed.status, self._plugin.api_version
        if printed.kind != "ExecCredential" or printed.api_version != wanted:
            raise self._failed(
                f"printed {printed.kind or 'no kind'} {printed.api_version}, not ExecCredential {wanted}"
            )
        if status is None or not (status.token or status.client_certificate_data):
            raise self._failed("printed neither a token nor a certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._failed("printed a certificate without its key, or a key without its certificate")
        return ExecCredentials(
            status.token,
            status.client_certificate_data.encode(),
            status.client_key_data.encode(),
            self._renewal(status.expiration_timestamp),
        )

    def _renewal(self, expires: str | None) -> float | None:
        if expires is None:
            return None
        try:
            end = clock.parse(expires)
        except ValueError:
            raise self._failed(f"printed an invalid expirationTimestamp: {expires!r}") from None
        # A share, because credentials that live for less than a minute would never be fresh with a fixed margin.
        return end - min(_EARLY_SECONDS, max(end - clock.time(), 0.0) * _EARLY_SHARE)

    def _failed(self, why: str, *, hint: bool = False) -> KubeconfigError:
        text = f"the credential plugin {self._plugin.command!r} of {self._origin} {why}"
        if hint and self._plugin.install_hint:
            text += f"\n{self._plugin.install_hint.strip()}"
        return KubeconfigError(text)


def exec_info(plugin: ExecPlugin) -> bytes:
    """Return the ExecCredential that is passed to the program in KUBERNETES_EXEC_INFO."""
    spec: dict[str, object] = {"interactive": False}
    if plugin.cluster_info is not None:
        spec["cluster"] = plugin.cluster_info
    return msgspec.json.encode({"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec})


async def _end(process: Process) -> None:
    """End the plugin and all its child processes, also after cancellation."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        await process.wait()
