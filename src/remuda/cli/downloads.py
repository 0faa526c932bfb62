"""Download the files of a release: verified by TLS and checksum, resumed where an earlier attempt ended.

A file that is not complete is NAME.part in the download folder; it gets its name when its checksum is right. So a file
with its own name is always correct, and an interrupted command continues when it runs again.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import click

_PIECE = 256 * 1024
_ATTEMPTS = 5  # without a single new byte
_PAUSE_SECONDS = 1.0
_SILENCE_SECONDS = 60.0  # of a server, until the connection counts as lost
_ASK_SECONDS = 5.0
_REPORT_SECONDS = 5.0  # between two lines of progress where there is no terminal
_LIST_BYTES = 1024 * 1024
_MISSING = 404
_RANGE_IGNORED, _RANGE_BAD = 200, 416


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if not newurl.startswith("https://"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_Failure = (urllib.error.URLError, http.client.HTTPException, OSError)


def _open(url: str, headers: Mapping[str, str], seconds: float, method: str = "GET") -> Any:
    """Open an https URL. The CAs are the system's, or those of $SSL_CERT_FILE; $HTTPS_PROXY is used."""
    opener = urllib.request.build_opener(_OnlyHttps)
    request = urllib.request.Request(url, headers={"User-Agent": "remuda", **headers}, method=method)  # noqa: S310
    return opener.open(request, timeout=seconds)


def folder() -> Path:
    """Return the folder of downloads that are not stored yet."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "remuda" / "downloads"


def release_exists(folder: str) -> bool | None:
    """Return whether there is a release at this URL; None if nobody answers."""
    try:
        _open(f"{folder}/sha256sum-amd64.txt", {}, _ASK_SECONDS, "HEAD").close()
    except urllib.error.HTTPError as error:
        return False if error.code == _MISSING else None
    except _Failure:
        return None
    return True


def read_text(url: str) -> str:
    """Return a small file. Raises ClickException."""
    try:
        with _open(url, {}, _SILENCE_SECONDS) as answer:
            return str(answer.read(_LIST_BYTES).decode("utf-8", "replace"))
    except _Failure as error:
        raise click.ClickException(f"cannot download {url}: {_why(error)}") from None


def fetch(url: str, target: Path, sha256: str) -> Path:
    """Download a file to `target`, unless it is there. Raises ClickException."""
    if target.exists() and _checksum(target) == sha256:
        click.echo(f"{target.name}: already downloaded", err=True)
        return target
    part = target.with_name(f"{target.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    resumed = _download(url, part, 0)
    found = _checksum(part)
    if found != sha256 and resumed:
        # What an earlier attempt has left may be of another file: once more from the beginning.
        part.unlink()
        _download(url, part, 0)
        found = _checksum(part)
    if found != sha256:
        part.unlink()
        raise click.ClickException(
            f"wrong checksum of {url}: {found}, expected {sha256}. The file was deleted; if this happens again, the "
            "release or a proxy in between is damaged"
        )
    os.replace(part, target)
    return target


def _download(url: str, part: Path, failures: int) -> bool:
    """Append what is missing, and return whether there was something already."""
    resumed = part.exists() and part.stat().st_size > 0
    progress = _Progress(part.name.removesuffix(".part"))
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _append(url, part, before, progress):
                progress.end()
                return resumed
            why = "the connection was lost"
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise click.ClickException(f"cannot download {url}: {_why(error)}") from None
            why = _why(error)
        except _Failure as error:
            why = _why(error)
        failures = 0 if part.exists() and part.stat().st_size > before else failures + 1
        if failures >= _ATTEMPTS:
            raise click.ClickException(
                f"cannot download {url}: {why}. Run the command again to continue where it stopped"
            )
        progress.say(f"{why}; retrying")
        time.sleep(_PAUSE_SECONDS)


def _append(url: str, part: Path, present: int, progress: _Progress) -> bool:
    """Return whether the file is complete."""
    headers = {"Range": f"bytes={present}-"} if present else {}
    try:
        answer = _open(url, headers, _SILENCE_SECONDS)
    except urllib.error.HTTPError as error:
        if present and error.code == _RANGE_BAD:  # there is nothing after what is here
            return True
        raise
    with answer:
        if present and answer.status == _RANGE_IGNORED:
            present = 0
        length = answer.headers.get("Content-Length")
        whole = present + int(length) if length else None
        with part.open("ab" if present else "wb") as file:
            progress.start(present, whole)
            while piece := answer.read(_PIECE):
                file.write(piece)
                present += len(piece)
                progress.at(present)
    return whole is None or present >= whole


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _why(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return getattr(reason, "strerror", "") or str(reason) or type(reason).__name__


class _Progress:
    """Progress of one file on standard error: one line that changes on a terminal, else a line now and then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._whole: int | None = None
        self._live = sys.stderr.isatty()
        self._reported = 0.0
        self._present = 0

    def start(self, present: int, whole: int | None) -> None:
        self._whole, self._present = whole, present
        size = f": {whole / 1e6:.1f} MB" if whole else ""
        self.say(f"downloading{size}" + (f", resuming at {present / 1e6:.1f} MB" if present else ""))

    def at(self, present: int) -> None:
        self._present, now = present, time.monotonic()
        if now - self._reported >= (0.1 if self._live else _REPORT_SECONDS):
            self._reported = now
            self._show()

    def _show(self) -> None:
        share = f" of {self._whole / 1e6:.1f} MB ({100 * self._present // self._whole} %)" if self._whole else " MB"
        text = f"{self._name}: {self._present / 1e6:.1f}{share}"
        click.echo(f"\r\x1b[K{text}" if self._live else text, err=True, nl=not self._live)

    def say(self, text: str) -> None:
        click.echo(f"{chr(13) if self._live else ''}{self._name}: {text}", err=True)
        self._reported = time.monotonic()

    def end(self) -> None:
        self._show()
        if self._live:
            click.echo("", err=True)
