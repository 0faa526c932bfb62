"""Registration: exchanges a token for the connection info, at a verified server.

The server is verified by the checksum of its CA, or by the authorities of this system if no checksum is given. Each
step that waits prints one line, and has a time limit.
"""

from __future__ import annotations

import hashlib
import platform
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from remuda.agent import AgentError, connection, disk, formats, web
from remuda.agent.config import ConfigError
from remuda.agent.kube import Api, ApiError
from remuda.agent.layout import AgentLayout

_T = TypeVar("_T")

_TIMEOUT_SECONDS = 900.0
_REFUSAL_SECONDS = 30.0  # a refusal is retried this long: the server's caches may be behind
_PAUSE_SECONDS = 5.0
_ANSWER_SECONDS = 90.0


class InstallError(AgentError):
    """Failed installation; the text says what to do."""


class RegistrationRefused(AgentError):
    """The server refused the registration."""


def say(text: str) -> None:
    print(f"remuda-agent: {text}", flush=True)


class RegistrationOptions(NamedTuple):
    server: str
    token: str
    ca_checksum: str
    remote: bool
    local: bool
    timeout: float
    instruction_timeout: int  # seconds; 0: none


def wanted(environment: Mapping[str, str]) -> RegistrationOptions:
    found = RegistrationOptions(
        server=(environment.get("CATTLE_SERVER") or "").rstrip("/"),
        token=environment.get("CATTLE_TOKEN") or "",
        ca_checksum=(environment.get("CATTLE_CA_CHECKSUM") or "").lower(),
        remote=flag(environment, "CATTLE_REMOTE_ENABLED", True),
        local=flag(environment, "CATTLE_LOCAL_ENABLED", False),
        timeout=_seconds(environment, "REMUDA_PATIENCE_SECONDS", _TIMEOUT_SECONDS),
        instruction_timeout=int(_seconds(environment, "CATTLE_AGENT_INSTRUCTION_TIMEOUT", 0)),
    )
    if not found.remote and not found.local:
        raise InstallError("CATTLE_REMOTE_ENABLED and CATTLE_LOCAL_ENABLED are both false: there is nothing to follow")
    if found.remote and not found.server.startswith("https://"):
        raise InstallError("CATTLE_SERVER must be the https:// address of the management server")
    if found.remote and not found.token:
        raise InstallError("CATTLE_TOKEN is missing: it proves that this host may register")
    strict = flag(environment, "CATTLE_AGENT_STRICT_VERIFY", flag(environment, "STRICT_VERIFY", False))
    if found.remote and strict and not found.ca_checksum:
        raise InstallError("CATTLE_CA_CHECKSUM is missing, and strict verification requires it")
    return found


def flag(environment: Mapping[str, str], name: str, default: bool) -> bool:
    text = (environment.get(name) or "").lower()
    return default if not text else text in ("true", "1", "yes")


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or ""
    try:
        found = float(text) if text else default
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e9:
        raise InstallError(f"{name} is not a number of seconds")
    return found


class AgentRegistration:
    def __init__(self, asked: RegistrationOptions, layout: AgentLayout, environment: Mapping[str, str]) -> None:
        self._wanted = asked
        self._layout = layout
        self._environment = environment
        self._until = time.monotonic() + asked.timeout

    def connection_info(self) -> bytes:
        trust = web.context(self._authority())
        try:
            info = self._retry("registering at the server", lambda: self._trade(trust))
        except RegistrationRefused as error:
            kept = self._kept()
            if kept is None:
                raise InstallError(f"{self._wanted.server} refuses this host: {error}") from None
            say(f"the server refused the token ({error}); keeping the existing connection of this host, which works")
            return kept
        # Test the new connection before it replaces the existing one.
        api = Api(connection.parse(info))
        try:
            self._retry("reading the plan Secret", lambda: _try(api))
        except RegistrationRefused as error:
            raise InstallError(f"the connection info from the server does not work: {error}") from None
        return info

    def _authority(self) -> str | None:
        """Return the server's CA, after checking its checksum; None to use the authorities of this system."""
        if not self._wanted.ca_checksum:
            say("no CA checksum given; verifying the server with the certificate authorities of this system")
            return None
        anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anyone.check_hostname = False
        anyone.verify_mode = ssl.CERT_NONE  # the content is verified by its checksum
        url = f"{self._wanted.server}/cacerts"
        answer = self._retry("fetching the server's CA", lambda: _successful(url, anyone, {}, 30))
        found = hashlib.sha256(answer.content).hexdigest()
        if found != self._wanted.ca_checksum:
            raise InstallError(
                f"{self._wanted.server} has another CA than expected, so it is not trusted: expected the checksum "
                f"{self._wanted.ca_checksum}, got {found}"
            )
        return answer.content.decode()

    def _trade(self, trust: ssl.SSLContext) -> bytes:
        url = f"{self._wanted.server}/v3/connect/agent"
        content = _successful(url, trust, self._headers(), _ANSWER_SECONDS).content
        try:
            connection.parse(content)
        except ConfigError as error:
            raise web.ServerUnreachable(f"{self._wanted.server}: {error}") from None
        return content

    def _headers(self) -> dict[str, str]:
        given = self._environment
        none = flag(given, "CATTLE_ROLE_NONE", False)
        headers = {"Authorization": f"Bearer {self._wanted.token}", "X-Cattle-Id": self._id()}
        for name, role in (("Etcd", "ETCD"), ("Control-Plane", "CONTROLPLANE"), ("Worker", "WORKER")):
            has = not none and flag(given, f"CATTLE_ROLE_{role}", False)
            headers[f"X-Cattle-Role-{name}"] = "true" if has else "false"
        headers["X-Cattle-Node-Name"] = given.get("CATTLE_NODE_NAME") or platform.node().lower()
        headers["X-Cattle-Address"] = given.get("CATTLE_ADDRESS") or self._layout.address
        headers["X-Cattle-Internal-Address"] = given.get("CATTLE_INTERNAL_ADDRESS") or ""
        headers["X-Cattle-Labels"] = given.get("CATTLE_LABELS") or ""
        headers["X-Cattle-Taints"] = given.get("CATTLE_TAINTS") or ""
        # A line break in a value would add headers to the request.
        for name, value in headers.items():
            if not value.isprintable() or not value.isascii():
                raise InstallError(f"the value of {name} must be printable ASCII in one line")
        return headers

    def _id(self) -> str:
        """Return the permanent ID of this host, and write it to disk when it is new."""
        kept = (disk.read(self._layout.id_file) or b"").decode("ascii", "replace").strip()
        found = self._environment.get("CATTLE_ID") or kept
        found = found or hashlib.sha256(secrets.token_bytes(512)).hexdigest()[:63]
        # Store the ID before it is sent: the server recognizes by it a host that registers again.
        if found != kept:
            disk.write(self._layout.id_file, f"{found}\n".encode())
        return found

    def _kept(self) -> bytes | None:
        """Return the existing connection info if it still works."""
        content = disk.read(self._layout.connection_file)
        if content is None:
            return None
        try:
            _try(Api(connection.parse(content)))
        except (ConfigError, RegistrationRefused, web.ServerUnreachable):
            return None
        return content

    def _retry(self, what: str, act: Callable[[], _T]) -> _T:
        """Retry until it works, the time limit is over, or the server has refused for long enough."""
        began = refused_since = time.monotonic()
        said = ""
        while True:
            try:
                return act()
            except web.ServerUnreachable as error:
                trouble, pause = str(error), _PAUSE_SECONDS
                refused_since = time.monotonic()
                if time.monotonic() > self._until:
                    waited = time.monotonic() - began
                    raise InstallError(f"{what} failed for {waited:.0f} s: {trouble}") from None
            except RegistrationRefused as error:
                trouble, pause = str(error), _PAUSE_SECONDS
                if time.monotonic() > min(refused_since + _REFUSAL_SECONDS, self._until):
                    raise
            if trouble != said:
                say(f"{what}: {trouble}; retrying every {pause:.0f} s")
                said = trouble
            time.sleep(pause)


def _try(api: Api) -> None:
    try:
        api.get()
    except ApiError as error:
        if error.code in (401, 403, 404):
            raise RegistrationRefused(str(error)) from None
        raise web.ServerUnreachable(str(error)) from None
    finally:
        api.close()


def _successful(url: str, trust: ssl.SSLContext, headers: Mapping[str, str], seconds: float) -> web.HttpResponse:
    answer = web.get(url, trust, headers, seconds=seconds)
    if answer.code == 200:
        return answer
    words = answer.content[:500].decode("utf-8", "replace").strip().replace("\n", " ")
    text = f"{url} answers {answer.code}" + (f": {_message(words)}" if words else "")
    skew = web.skew_in_words(web.skew(answer.headers, time.time()))
    if 400 <= answer.code < 500 and answer.code not in (408, 425, 429):
        raise RegistrationRefused(text + (f"; {skew}" if skew else ""))
    raise web.ServerUnreachable(text)


def _message(words: str) -> str:
    try:
        return str(formats.parse_json(words)["message"])
    except (ValueError, KeyError, TypeError):
        return words
