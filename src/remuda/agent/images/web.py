"""HTTP requests through the proxy of the environment, over verified TLS, with deadlines.

The caller handles redirects. Errors that a retry may fix are `RegistryUnreachable`; a rejected certificate is not one
of them.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import ipaddress
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from remuda.agent.images import ImageError

_SECONDS = 60.0  # timeout without received data
_AGENT = "remuda-agent"


class RegistryUnreachable(ImageError):
    """Error that a retry may resolve."""


class RegistryResponse:
    def __init__(self, response: http.client.HTTPResponse, host: str) -> None:
        self._response = response
        self._host = host
        self.status = response.status

    def header(self, name: str) -> str:
        return self._response.headers.get(name) or ""

    def headers(self, name: str) -> list[str]:
        return self._response.headers.get_all(name) or []

    def read(self, size: int) -> bytes:
        try:
            return self._response.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise RegistryUnreachable(f"{self._host} closed the connection: {_words(error)}") from None


class Web:
    """HTTP client. `context` returns the TLS context for a host."""

    def __init__(self, context: Callable[[str], ssl.SSLContext], environment: Mapping[str, str] = os.environ) -> None:
        self._context = context
        self._environment = environment

    @contextlib.contextmanager
    def ask(self, url: str, headers: Mapping[str, str], form: bytes | None = None) -> Iterator[RegistryResponse]:
        """Send a GET, or a POST of a form."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ImageError("a registry redirects to an address that is neither http nor https")
        connection, target = self._connect(parts)
        sent = {"User-Agent": _AGENT, "Connection": "close", **headers}
        if form is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            try:
                connection.request("GET" if form is None else "POST", target, body=form, headers=sent)
                response = connection.getresponse()
            except ssl.SSLCertVerificationError as error:
                raise ImageError(
                    f"the certificate of {parts.netloc} is not trusted: {error.verify_message}; its authority belongs "
                    f"into configs[{parts.netloc}].tls.ca_file of registries.yaml"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                raise RegistryUnreachable(f"{parts.netloc} cannot be reached: {_words(error)}") from None
            yield RegistryResponse(response, parts.netloc)
        finally:
            connection.close()

    def _connect(self, url: SplitResult) -> tuple[http.client.HTTPConnection, str]:
        assert url.hostname is not None
        try:
            host, port = url.hostname, url.port or (443 if url.scheme == "https" else 80)
        except ValueError:
            raise ImageError("a registry redirects to an address with an invalid port") from None
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        proxy = proxy_for(url.scheme, host, port, self._environment)
        if proxy is None:
            if url.scheme == "https":
                context = self._context(url.netloc)
                return http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context), target
            return http.client.HTTPConnection(host, port, timeout=_SECONDS), target
        assert proxy.hostname is not None
        headers = {"Proxy-Authorization": _basic(proxy)} if proxy.username else {}
        if url.scheme == "https":
            tunnel = http.client.HTTPSConnection(
                proxy.hostname, proxy.port or 80, timeout=_SECONDS, context=self._context(url.netloc)
            )
            tunnel.set_tunnel(host, port, headers)
            return tunnel, target
        through = http.client.HTTPConnection(proxy.hostname, proxy.port or 80, timeout=_SECONDS)
        return through, f"http://{url.netloc}{target}"


def proxy_for(scheme: str, host: str, port: int, environment: Mapping[str, str]) -> SplitResult | None:
    """Return the proxy for a host, as Go programs read the environment: never for this machine itself, nor for hosts
    that NO_PROXY lists as a name (with its subdomains), an address, a network, or `*`.
    """
    address = environment.get(f"{scheme}_proxy") or environment.get(f"{scheme.upper()}_PROXY") or ""
    if not address or _is_excepted(host, port, environment.get("no_proxy") or environment.get("NO_PROXY") or ""):
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ImageError(f"the proxy in {scheme.upper()}_PROXY must be an http URL")
    return proxy


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        ip = None
    if host == "localhost" or (ip is not None and ip.is_loopback):
        return True
    for word in (part.strip().lower() for part in exceptions.split(",")):
        name, colon, wanted = word.rpartition(":")
        if colon and wanted.isdecimal() and name.count(":") == 0:
            if int(wanted) != port:
                continue
            word = name
        if word == "*" or (word and _is_meant(host.lower(), ip, word)):
            return True
    return False


def _is_meant(host: str, ip: ipaddress.IPv4Address | ipaddress.IPv6Address | None, word: str) -> bool:
    if ip is not None:
        try:
            return ip in ipaddress.ip_network(word.strip("[]"), strict=False)
        except (ValueError, TypeError):
            return False
    word = word[1:] if word.startswith("*.") else word
    return host.endswith(word) if word.startswith(".") else host == word or host.endswith(f".{word}")


def _basic(proxy: SplitResult) -> str:
    pair = f"{unquote(proxy.username or '')}:{unquote(proxy.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_SECONDS:g} s"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
