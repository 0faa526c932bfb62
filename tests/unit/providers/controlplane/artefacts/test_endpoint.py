"""Artefacts over the wire: in parts, with their checksums, and nothing else."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from remuda.apiserver.http.listener import Listener
from remuda.kube import certificates
from remuda.kube.http.tls import load_pair
from remuda.providers.controlplane.artefacts import Artefacts
from remuda.providers.controlplane.artefacts.endpoint import ArtefactFiles

CONTENT = bytes(range(256)) * 4096  # a megabyte: several pieces
PATH = "/artefacts/k3s/v1.36.4+k3s1/amd64/k3s"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[aiohttp.ClientSession, Artefacts]]:
    now, ca_key, key = datetime.now(UTC), certificates.new_key(), certificates.new_key()
    authority = certificates.Authority(certificates.make_ca(ca_key, "test", 10, now), ca_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = certificates.certificate_pem(authority.issue_server(key, ["127.0.0.1"], 5, now)), certificates.key_pem(key)
    load_pair(context, *pair, "test")
    store = Artefacts(tmp_path / "store")
    listener = Listener(ArtefactFiles(store).serve)
    await listener.start("127.0.0.1", 0, context)
    trust = ssl.create_default_context(cadata=certificates.certificate_pem(authority.certificate).decode())
    connector = aiohttp.TCPConnector(ssl=trust)
    async with aiohttp.ClientSession(f"https://127.0.0.1:{listener.port}", connector=connector) as session:
        yield session, store
    await listener.stop(1)


@pytest.fixture
def content(tmp_path: Path) -> Path:
    path = tmp_path / "given"
    path.write_bytes(CONTENT)
    return path


async def test_added_artefact_is_served_with_checksum_and_etag(
    served: tuple[aiohttp.ClientSession, Artefacts], content: Path
) -> None:
    session, store = served
    async with session.get(PATH) as answer:
        assert answer.status == 404
    store.add("k3s", "v1.36.4+k3s1", "amd64", {"k3s": content})
    checksum = hashlib.sha256(CONTENT).hexdigest()
    async with session.get(PATH) as answer:
        assert (answer.status, answer.headers["ETag"]) == (200, f'"{checksum}"')
        assert await answer.read() == CONTENT
    async with session.get(f"{PATH}.sha256") as answer:
        assert await answer.text() == f"{checksum}  k3s\n"
    async with session.get(PATH, headers={"If-None-Match": f'"{checksum}"'}) as answer:
        assert answer.status == 304
    async with session.post(PATH) as answer:
        assert answer.status == 405


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [("bytes=0-0", 0, 0), ("bytes=1000-", 1000, None), ("bytes=-7", -7, None), ("bytes=300000-600000", 300000, 600000)],
)
async def test_range_request_returns_partial_content(
    served: tuple[aiohttp.ClientSession, Artefacts], content: Path, asked: str, first: int, last: int | None
) -> None:
    session, store = served
    store.add("k3s", "v1.36.4+k3s1", "amd64", {"k3s": content})
    async with session.get(PATH, headers={"Range": asked}) as answer:
        assert answer.status == 206
        assert await answer.read() == CONTENT[first : None if last is None else last + 1]
        assert answer.headers["Content-Range"].endswith(f"/{len(CONTENT)}")


async def test_unsatisfiable_range_returns_416_and_other_etag_returns_whole_file(
    served: tuple[aiohttp.ClientSession, Artefacts], content: Path
) -> None:
    session, store = served
    store.add("k3s", "v1.36.4+k3s1", "amd64", {"k3s": content})
    async with session.get(PATH, headers={"Range": f"bytes={len(CONTENT)}-"}) as answer:
        assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{len(CONTENT)}")
    async with session.get(PATH, headers={"Range": "bytes=5-", "If-Range": '"another"'}) as answer:
        assert (answer.status, await answer.read()) == (200, CONTENT)


@pytest.mark.parametrize(
    "path",
    [
        "/artefacts/k3s/v1.36.4+k3s1/amd64/SHA256SUMS",
        "/artefacts/k3s/v1.36.4+k3s1/amd64/%2e%2e%2famd64%2fk3s",
        "/artefacts/k3s/v1.36.4+k3s1/amd64",
        "/artefacts/../../../../etc/passwd",
        "/artefacts//etc/passwd",
        "/artefacts/k3s/v1.36.4+k3s1/amd64/k3s/",
    ],
)
async def test_invalid_paths_return_404(
    served: tuple[aiohttp.ClientSession, Artefacts], content: Path, path: str
) -> None:
    from yarl import URL

    session, store = served
    store.add("k3s", "v1.36.4+k3s1", "amd64", {"k3s": content})
    async with session.get(URL(path, encoded=True)) as answer:
        assert answer.status == 404
