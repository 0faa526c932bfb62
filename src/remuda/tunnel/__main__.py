"""`python -m remuda.tunnel --config FILE`: runs the tunnel client until SIGTERM.

All settings are in one JSON file. The client reads it, and every file that it names, again before each attempt to
connect, so that tokens, authorities and URLs can change while it runs. Paths may be relative to the JSON file. Tokens
are read from files and never from arguments. On a host that is a folder, loopback means REMUDA_HOST_ADDRESS. If the
loop of the client hangs, a watchdog outside the interpreter ends the process with a stack trace, and its supervisor
restarts it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from remuda.tunnel.allow import Allow, DialTarget, at, parse_target
from remuda.tunnel.client import ReconnectDelays, Status, TunnelClient, TunnelSettings
from remuda.tunnel.local_readiness import WaitFor
from remuda.tunnel.mux import Timing
from remuda.tunnel.streams import StreamLimits
from remuda.tunnel.websocket_client import parse

_KNOWN = {
    *("urls", "authorities", "token_file", "headers", "allow", "status_file", "timing", "limits", "waits"),
    *("wait_for", "wait_for_authorities"),
}
_WATCHDOG_SECONDS = 120.0
_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}


class ConfigError(ValueError):
    """Invalid configuration file; the text says what is wrong."""


def load(path: str) -> TunnelSettings:
    """Read the settings. Raises ConfigError and OSError."""
    found = _read(path)
    headers = [(str(name), str(value)) for name, value in _typed(found, "headers", dict, {}).items()]
    if found.get("token_file"):
        headers.append(("Authorization", f"Bearer {_text(_relative_to(path, found['token_file'])).strip()}"))
    urls = tuple(str(url) for url in _typed(found, "urls", list, []))
    if not urls:
        raise ConfigError(f"{path}: urls must list at least one URL")
    loopback = os.environ.get("REMUDA_HOST_ADDRESS") or ""
    try:
        return TunnelSettings(
            urls=urls,
            authorities=_texts(path, found, "authorities"),
            headers=tuple(headers),
            allow=Allow(_typed(found, "allow", list, []), loopback),
            wait_for=_wait_for(path, found, loopback),
            timing=Timing(**_numbers(found, "timing", Timing._fields)),
            limits=StreamLimits(
                **{name: int(value) for name, value in _numbers(found, "limits", StreamLimits._fields).items()}
            ),
            waits=ReconnectDelays(**_numbers(found, "waits", ReconnectDelays._fields)),
        )
    except ConfigError:
        raise
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _read(path: str) -> dict[str, Any]:
    try:
        found = json.loads(_text(path))
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not a JSON object")
    for name in found:
        if name not in _KNOWN:
            raise ConfigError(f"{path}: unknown setting {name}; known settings: {', '.join(sorted(_KNOWN))}")
    return found


def _wait_for(path: str, found: dict[str, Any], loopback: str) -> WaitFor | None:
    value = str(found.get("wait_for") or "")
    if not value:
        return None
    try:
        if not value.startswith("https:"):
            network, _, address = value.partition("/")
            return WaitFor(at(parse_target(network, address), loopback))
        place = parse(value)
        return WaitFor(
            at(DialTarget("tcp", place.host, place.port), loopback), value, _texts(path, found, "wait_for_authorities")
        )
    except ValueError as error:
        raise ConfigError(f"wait_for: {error}; write it like tcp/127.0.0.1:6443") from None


def _texts(path: str, found: dict[str, Any], name: str) -> str:
    """Return the contents of the files that the setting names, joined."""
    return "\n".join(_text(_relative_to(path, file)) for file in _typed(found, name, list, []))


def _relative_to(path: str, file: Any) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(path)), str(file))


def _typed(found: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = found.get(name, default)
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be a JSON {'object' if kind is dict else 'list'}")
    return value


def _numbers(found: dict[str, Any], name: str, known: tuple[str, ...]) -> dict[str, float]:
    values = _typed(found, name, dict, {})
    for key, value in values.items():
        if key not in known or isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise ConfigError(f"{name}.{key}: expected a positive number for one of {', '.join(known)}")
    return dict(values)


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


class _StatusReporter:
    """Logs each change of status once, and writes the status file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last_line = ""

    def report(self, status: Status) -> None:
        if status.connected_to:
            line = f"INFO tunnel to {status.connected_to} is open"
        elif status.waiting_for:
            line = f"INFO tunnel not opened yet: {status.waiting_for}"
        else:
            line = f"WARNING tunnel is disconnected: {status.last_disconnect_reason}; retrying"
        if line != self._last_line:
            self._last_line = line
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        if self._path:
            self._write(status)

    def _write(self, status: Status) -> None:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(status.since))
        content = json.dumps({**status._asdict(), "since": since}, indent=2) + "\n"
        part = f"{self._path}.part"
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(content)
            # Replace the file in one step, so that a reader never sees half a status.
            os.replace(part, self._path)
        except OSError as error:
            sys.stderr.write(f"WARNING cannot write the status file {self._path}: {error.strerror}\n")


def main(arguments: list[str]) -> int:
    if len(arguments) != 2 or arguments[0] != "--config":
        sys.stderr.write("usage: remuda-tunnel --config FILE\n")
        return 2
    path = arguments[1]
    try:
        load(path)
        status_file = str(_read(path).get("status_file") or "")
        status_file = status_file and _relative_to(path, status_file)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"ERROR {error}\n")
        return 1
    # Block the signals and wait for them below: a handler could run while its own thread holds a lock.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    client = TunnelClient(lambda: load(path), _StatusReporter(status_file).report, _reset_watchdog)
    ended = threading.Event()
    runner = threading.Thread(target=_run, args=(client, ended), name="tunnel")
    runner.start()
    signal.sigwait(_STOP_SIGNALS)
    crashed = ended.is_set()
    client.stop()
    runner.join()
    return 1 if crashed else 0


def _run(client: TunnelClient, ended: threading.Event) -> None:
    try:
        client.run()
    finally:
        # Before the signal: the main thread may run first, while this thread is still alive.
        ended.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _reset_watchdog() -> None:
    faulthandler.dump_traceback_later(_WATCHDOG_SECONDS, exit=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
