"""Client of a registry's distribution API: manifests by tag or digest, blobs by digest.

It first sends requests without credentials and answers the challenge: Basic, or a token from the server that the
registry names. Credentials are sent to that registry only: a redirect to another host gets none, and no redirect leads
from https to http. Temporary errors are retried; an interrupted blob is resumed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from remuda.agent import formats
from remuda.agent.images import ImageError, manifests
from remuda.agent.images.credentials import RegistryCredentials
from remuda.agent.images.registries import Endpoint
from remuda.agent.images.web import RegistryResponse, RegistryUnreachable, Web

_TRIES = 4
_LONGEST_WAIT = 30.0
_REDIRECTS = 5
_PASSING = (408, 429, 500, 502, 503, 504)
_PIECE = 1 << 20
_CLIENT = "remuda-agent"


class ImageRegistry:
    """Endpoint for one repository."""

    def __init__(
        self,
        endpoint: Endpoint,
        web: Web,
        credentials: Callable[[], RegistryCredentials | None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._web = web
        self._find_credentials = credentials
        self._sleep = sleep
        self._authorization = ""

    def manifest(self, wanted: str) -> bytes:
        """Fetch a manifest by tag or digest. Content that does not match its digest is refused."""
        accept = ", ".join((*manifests.INDEXES, *manifests.IMAGES))
        with self._get(f"manifests/{quote(wanted)}", {"Accept": accept}, "the image") as answer:
            content = _whole(answer)
        if ":" in wanted:
            manifests.check(content, wanted, "its manifest")
        return content

    def blob(self, layer: manifests.Layer, into: IO[bytes]) -> None:
        """Fetch a blob into an empty file and verify its digest. An interrupted transfer is resumed."""
        algorithm, _, expected = layer.digest.partition(":")
        found, got = hashlib.new(algorithm), 0
        for again in range(_TRIES):
            if again:
                self._wait(again, "")
            headers = {"Range": f"bytes={got}-"} if got else {}
            with self._get(f"blobs/{quote(layer.digest)}", headers, f"its blob {layer.digest}") as answer:
                # A server may ignore Range and send the whole blob again.
                if got and not answer.header("Content-Range").startswith(f"bytes {got}-"):
                    into.seek(0)
                    into.truncate()
                    found, got = hashlib.new(algorithm), 0
                with contextlib.suppress(RegistryUnreachable):
                    while piece := answer.read(_PIECE):
                        got += len(piece)
                        if got > layer.size:
                            raise ImageError(f"its blob {layer.digest} is longer than the manifest says")
                        found.update(piece)
                        into.write(piece)
            if got == layer.size:
                break
        else:
            raise RegistryUnreachable(f"its blob {layer.digest} was interrupted {_TRIES} times")
        if found.hexdigest() != expected:
            raise ImageError(f"its blob {layer.digest} is not what its digest says")

    @contextlib.contextmanager
    def _get(self, path: str, headers: Mapping[str, str], what: str) -> Iterator[RegistryResponse]:
        """Yield the response with the content, after redirects, authentication and retries."""
        url = f"{self.endpoint.base}/{self.endpoint.repository}/{path}"
        if self.endpoint.namespace:
            url += f"?ns={quote(self.endpoint.namespace)}"
        challenged, redirects, again, allowed = False, 0, 0, dict(headers)
        while True:
            # Registries redirect to storage on other hosts, which must not get the credentials.
            if self._is_here(url) and self._authorization:
                allowed["Authorization"] = self._authorization
            try:
                with self._web.ask(url, allowed) as answer:
                    if answer.status in (200, 206):
                        yield answer
                        return
                    status, after = answer.status, answer.header("Retry-After")
                    challenges, location = answer.headers("WWW-Authenticate"), answer.header("Location")
                    trouble = ImageError(f"{urlsplit(url).netloc} answered {status} when asked for {what}")
            except RegistryUnreachable as error:
                status, after, challenges, location, trouble = 503, "", [], "", error
            if status in (301, 302, 303, 307, 308) and location and redirects < _REDIRECTS:
                url, redirects, allowed = self._redirected(url, location), redirects + 1, dict(headers)
            elif status == 401 and challenges and not challenged and self._is_here(url):
                challenged = True
                self._authorization = self._authorize(challenges)
            elif status in _PASSING and again < _TRIES - 1:
                again += 1
                self._wait(again, after)
            else:
                raise _refusal(status, what, bool(self._authorization)) or trouble

    def _is_here(self, url: str) -> bool:
        ours, theirs = urlsplit(self.endpoint.base), urlsplit(url)
        return (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)

    def _redirected(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        if url.startswith("https:") and not target.startswith("https:"):
            raise ImageError(f"{urlsplit(url).netloc} redirects from https to http")
        return target

    def _authorize(self, challenges: list[str]) -> str:
        """Return the value of the Authorization header. Raises ImageError."""
        credentials = self._find_credentials()
        offers = {scheme: parameters for challenge in challenges for scheme, parameters in _parsed(challenge)}
        if "bearer" in offers:
            return "Bearer " + self._token(offers["bearer"], credentials)
        if "basic" in offers and credentials is not None:
            return _basic(credentials)
        raise ImageError(
            f"{self.endpoint.host} asks for credentials, and none are known for it"
            if credentials is None
            else f"{self.endpoint.host} asks for credentials in a way that is not known here"
        )

    def _token(self, challenge: dict[str, str], credentials: RegistryCredentials | None) -> str:
        realm = challenge.get("realm", "")
        if not realm.startswith(("https://", "http://") if self.endpoint.base.startswith("http:") else "https://"):
            raise ImageError(f"{self.endpoint.host} names no https token server")
        asked = {"scope": challenge.get("scope") or f"repository:{self.endpoint.repository}:pull"}
        if challenge.get("service"):
            asked["service"] = challenge["service"]
        if credentials is not None and credentials.identity_token:
            grant = {"grant_type": "refresh_token", "refresh_token": credentials.identity_token, "client_id": _CLIENT}
            return self._ask_for_token(realm, {}, urlencode({**asked, **grant}).encode())
        headers = {"Authorization": _basic(credentials)} if credentials is not None else {}
        return self._ask_for_token(f"{realm}{'&' if '?' in realm else '?'}{urlencode(asked)}", headers, None)

    def _ask_for_token(self, url: str, headers: dict[str, str], form: bytes | None) -> str:
        host = urlsplit(url).netloc
        for again in range(1, _TRIES + 1):
            try:
                with self._web.ask(url, headers, form) as answer:
                    status, content = answer.status, _whole(answer)
            except RegistryUnreachable:
                if again == _TRIES:
                    raise
                status, content = 503, b""
            if status not in _PASSING or again == _TRIES:
                break
            self._wait(again, "")
        if status in (401, 403):
            raise ImageError(f"the token server {host} refuses the credentials that are known for {self.endpoint.host}")
        try:
            document = formats.parse_json(content) if status == 200 else None
        except ValueError:
            document = None
        token = (document.get("token") or document.get("access_token")) if isinstance(document, dict) else None
        if not isinstance(token, str) or not re.fullmatch(r"[!-~]+", token):
            raise ImageError(f"the token server {host} answered {status} without a token")
        return token

    def _wait(self, again: int, after: str) -> None:
        longest = min(_LONGEST_WAIT, 0.5 * 2**again)
        asked = min(float(after), _LONGEST_WAIT) if after.isdecimal() else 0.0
        self._sleep(asked + random.uniform(0, longest))  # noqa: S311 - so that not all come back at once


def _refusal(status: int, what: str, known: bool) -> ImageError | None:
    if status in (401, 403):
        return ImageError(
            f"it refuses {what}: " + ("the credentials do not suffice" if known else "it wants credentials")
        )
    return ImageError(f"it does not have {what}") if status == 404 else None


def _whole(answer: RegistryResponse) -> bytes:
    pieces, size = [], 0
    while piece := answer.read(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > manifests.LARGEST:
            raise ImageError("an answer is larger than any manifest may be")
    return b"".join(pieces)


def _basic(credentials: RegistryCredentials) -> str:
    return "Basic " + base64.b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()


def _parsed(challenge: str) -> list[tuple[str, dict[str, str]]]:
    """Parse `Bearer realm="…",service="…"`: the schemes in lower case, with their parameters."""
    found: list[tuple[str, dict[str, Any]]] = []
    for part in re.finditer(r'([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))|([\w-]+)', challenge):
        if part[4]:
            found.append((part[4].lower(), {}))
        elif found:
            found[-1][1][part[1].lower()] = re.sub(r"\\(.)", r"\1", part[2]) if part[2] is not None else part[3]
    return found
