"""`remuda artefacts add` without files: from an HTTPS server whose certificate is verified, into a store."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from remuda.cli import downloads
from remuda.cli.artefacts import command
from tests.lab.release_server import ReleaseServer

VERSION = "v1.36.4+k3s1"
PROGRAM, IMAGES = os.urandom(700_000), os.urandom(100_000)
ARCHIVE = "k3s-airgap-images-amd64.tar.zst"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleaseServer]:
    found = ReleaseServer(tmp_path / "releases", "127.0.0.1")
    found.release(VERSION, "amd64", **{"k3s": PROGRAM, ARCHIVE: IMAGES})
    (tmp_path / "channels.yaml").write_text(found.channels(VERSION))
    monkeypatch.setenv("SSL_CERT_FILE", str(found.ca))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(downloads, "_PAUSE_SECONDS", 0.01)
    with found.running():
        yield found


def add(folder: Path, *words: str) -> Result:
    place: list[Any] = ["--artefacts", str(folder / "store"), "--channels", str(folder / "channels.yaml")]
    return CliRunner().invoke(command, ["add", "k3s", "stable", "--arch", "amd64", *place, *words])


def stored(folder: Path) -> dict[str, bytes]:
    found = (folder / "store/k3s" / VERSION / "amd64").glob("[!S.]*")
    return {path.name: path.read_bytes() for path in found}


def test_channel_is_downloaded_and_stored(server: ReleaseServer, tmp_path: Path) -> None:
    done = add(tmp_path)
    assert done.exit_code == 0, done.output
    assert stored(tmp_path) == {"k3s": PROGRAM, "images.tar.zst": IMAGES}
    assert "k3s: downloading: 0.7 MB" in done.stderr
    assert "k3s: 0.7 of 0.7 MB (100 %)" in done.stderr
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    server.requests.clear()
    assert "k3s: already stored" in add(tmp_path).stderr
    assert [path for _, path, _ in server.requests] == [f"{VERSION}/sha256sum-amd64.txt"]


def test_interrupted_download_resumes_within_the_command(server: ReleaseServer, tmp_path: Path) -> None:
    server.break_off_after = {"k3s": 300_000}
    done = add(tmp_path, "--no-images")
    assert done.exit_code == 0, done.output
    assert stored(tmp_path) == {"k3s": PROGRAM}
    assert "the connection was lost; retrying" in done.stderr
    assert ("GET", f"{VERSION}/k3s", "bytes=300000-") in server.requests


def test_interrupted_command_resumes_when_it_runs_again(server: ReleaseServer, tmp_path: Path) -> None:
    part = tmp_path / "cache/remuda/downloads/k3s" / VERSION / "amd64/k3s.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(PROGRAM[:500_000])
    done = add(tmp_path, "--no-images")
    assert done.exit_code == 0, done.output
    assert "resuming at 0.5 MB" in done.stderr
    assert ("GET", f"{VERSION}/k3s", "bytes=500000-") in server.requests
    assert stored(tmp_path) == {"k3s": PROGRAM}


def test_wrong_checksum_is_refused(server: ReleaseServer, tmp_path: Path) -> None:
    (server.folder / VERSION / "k3s").write_bytes(PROGRAM[:-1] + b"?")
    done = add(tmp_path)
    assert done.exit_code == 1
    assert f"wrong checksum of {server.url}" in done.stderr
    assert stored(tmp_path) == {}
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_server_with_unknown_certificate_is_refused(
    server: ReleaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    done = add(tmp_path)
    assert done.exit_code == 1
    assert "certificate verify failed" in done.stderr
    assert downloads.release_exists(f"{server.url}/{VERSION}") is None


def test_release_exists_where_its_checksums_are(server: ReleaseServer) -> None:
    assert downloads.release_exists(f"{server.url}/{VERSION}") is True
    assert downloads.release_exists(f"{server.url}/v9.9.9+k3s1") is False
