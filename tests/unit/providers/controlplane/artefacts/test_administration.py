"""Artefacts of a manager that runs: uploaded in pieces by administrators, bounded, and checked by their checksums."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from remuda.access.administration import Administration
from remuda.access.audit import Audit
from remuda.access.interfaces import ADMINISTRATION, Caller
from remuda.kube import clock
from remuda.kube.errors import entity_too_large, unauthorized
from remuda.kube.web import Request
from remuda.providers.controlplane.artefacts import Artefacts, nano_bundles
from remuda.providers.controlplane.artefacts.administration import (
    MOST_PIECE,
    ArtefactAdministration,
    NoSpace,
    Uploads,
    WrongOffset,
)
from remuda.providers.controlplane.artefacts.nano_bundles import VERSION as NANO
from remuda.providers.controlplane.artefacts.nano_bundles import Packing
from tests.lab.proxied import AuditLines

VERSION = "v1.36.4+k3s1"
CONTENT = b"a program"
SUM = hashlib.sha256(CONTENT).hexdigest()
FILES = f"files/k3s/{VERSION}/amd64"


class Peer:
    certificate = None
    address = "192.0.2.1:4711"

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read_body(self, request: Request, limit: int) -> bytes:
        if len(self._body) > limit:
            raise entity_too_large(limit)
        return self._body


class Manager:
    def __init__(self, folder: Path, **bounds: int) -> None:
        self.store = Artefacts(folder)
        room = ArtefactAdministration(Packing(folder), Uploads(folder, **bounds))
        self._administration = Administration(self._identify, self._permits, {"artefacts": room.answer}, Audit())
        self.asked: list[tuple[str, str]] = []

    async def _identify(self, request: Request) -> Caller:
        name = request.header(b"authorization").removeprefix("Bearer ")
        if not name:
            raise unauthorized()
        return Caller(name=name, clusters=("c-1",) if name == "limited" else None, token="t-1")

    async def _permits(self, caller: Caller, verb: str, path: str) -> bool:
        self.asked.append((verb, path))
        return caller.name in ("admin", "limited")

    async def ask(self, method: str, path: str, body: bytes = b"", who: str = "admin") -> tuple[int, Any]:
        headers = {b"authorization": f"Bearer {who}".encode()} if who else {}
        answer = await self._administration.serve(
            Request(Peer(body), method, f"{ADMINISTRATION}artefacts{path}", headers)
        )
        return answer.status, json.loads(answer.body)

    async def upload(self, content: bytes, checksum: str = "") -> str:
        checksum = checksum or hashlib.sha256(content).hexdigest()
        code, said = await self.ask("PUT", f"/uploads/{checksum}?offset=0", content)
        assert (code, said) == (200, {"bytes": len(content)})
        return checksum

    async def keep(self, files: dict[str, str], where: str = FILES, **options: bool) -> tuple[int, Any]:
        return await self.ask("POST", f"/{where}", json.dumps({"files": files, **options}).encode())


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    return Manager(tmp_path / "store", reserve_bytes=0)


async def test_uploaded_file_is_kept_under_its_name_and_listed(manager: Manager, tmp_path: Path) -> None:
    half = len(CONTENT) // 2
    assert await manager.ask("GET", f"/uploads/{SUM}") == (200, {"bytes": 0})
    assert await manager.ask("PUT", f"/uploads/{SUM}?offset=0", CONTENT[:half]) == (200, {"bytes": half})
    assert await manager.ask("GET", f"/uploads/{SUM}") == (200, {"bytes": half})
    code, said = await manager.ask("PUT", f"/uploads/{SUM}?offset=0", CONTENT)
    assert (code, said["message"]) == (409, f"{half} bytes are there")
    assert (await manager.ask("PUT", f"/uploads/{SUM}?offset={half}", CONTENT[half:]))[0] == 200
    assert (await manager.keep({"k3s": SUM}))[0] == 200
    one = {"distro": "k3s", "version": VERSION, "arch": "amd64", "name": "k3s", "sha256": SUM, "bytes": len(CONTENT)}
    assert await manager.ask("GET", "") == (200, {"directory": str(tmp_path / "store"), "items": [one]})
    assert await manager.ask("POST", f"/verify/k3s/{VERSION}/amd64/k3s") == (200, {"problem": ""})
    assert await manager.ask("GET", f"/uploads/{SUM}") == (200, {"bytes": 0})


async def test_bytes_with_another_checksum_are_refused_and_removed(manager: Manager) -> None:
    await manager.upload(b"something else", SUM)
    code, said = await manager.keep({"k3s": SUM})
    assert (code, "wrong checksum of" in said["message"]) == (400, True)
    assert list(manager.store.every()) == []
    assert await manager.ask("GET", f"/uploads/{SUM}") == (200, {"bytes": 0})


async def test_replacing_artefact_requires_replace_without_new_upload(manager: Manager) -> None:
    await manager.keep({"k3s": await manager.upload(CONTENT)})
    other = await manager.upload(b"another")
    code, said = await manager.keep({"k3s": other})
    assert (code, "--replace" in said["message"]) == (400, True)
    assert (await manager.keep({"k3s": other}, replace=True))[0] == 200
    assert [one.sha256 for one in manager.store.every()] == [other]


@pytest.mark.parametrize(
    ("where", "name", "complaint"),
    [
        (FILES, "passwd", "its name must be"),
        (FILES, "k3s-amd64", "must be stored as k3s"),
        (f"files/rke2/{VERSION}/amd64", "rke2.tar.gz", "is a version of k3s"),
        (f"files/k3s/{VERSION}/..", "k3s", "cannot be part of an artefact's name"),
        ("files/k3s/..%2F..%2Fetc/amd64", "k3s", ""),
    ],
)
async def test_unknown_artefact_names_are_rejected(
    manager: Manager, where: str, name: str, complaint: str, tmp_path: Path
) -> None:
    code, said = await manager.keep({name: await manager.upload(CONTENT)}, where)
    assert code in (400, 404)
    assert complaint in said["message"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["store"]


@pytest.mark.parametrize("checksum", ["..", SUM.upper(), "a" * 63, "%2e%2e%2fx"])
async def test_upload_path_must_be_checksum(manager: Manager, checksum: str) -> None:
    assert (await manager.ask("PUT", f"/uploads/{checksum}?offset=0", b"x"))[0] in (400, 404)


async def test_upload_pieces_and_total_size_are_limited(manager: Manager, tmp_path: Path) -> None:
    assert (await manager.ask("PUT", f"/uploads/{SUM}?offset=0", b"x" * (MOST_PIECE + 1)))[0] == 413
    narrow = Manager(tmp_path / "narrow", reserve_bytes=0, most_bytes=10)
    await narrow.upload(CONTENT)
    code, said = await narrow.ask("PUT", f"/uploads/{'a' * 64}?offset=0", b"xx")
    assert (code, str(tmp_path / "narrow") in said["message"]) == (507, True)


def test_upload_keeps_disk_space_reserve(tmp_path: Path) -> None:
    with pytest.raises(NoSpace, match="bytes left"):
        Uploads(tmp_path, reserve_bytes=1 << 62).append(SUM, 0, b"x")


def test_abandoned_upload_is_removed_by_next_upload(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, reserve_bytes=0)
    uploads.append(SUM, 0, CONTENT)
    os.utime(uploads.path(SUM), (0, clock.time() - 2 * 86400))
    uploads.append("b" * 64, 0, b"x")
    assert uploads.present(SUM) == 0


def test_upload_piece_must_start_at_current_size(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path, reserve_bytes=0)
    with pytest.raises(WrongOffset):
        uploads.append(SUM, 5, b"x")
    assert uploads.present(SUM) == 0


async def test_nano_is_packed_by_the_manager(manager: Manager) -> None:
    code, said = await manager.ask("POST", f"/pack/{NANO}")
    assert code == 200
    assert [(one["name"], one["arch"]) for one in said] == [(nano_bundles.NAME, nano_bundles.architecture())]
    assert (await manager.ask("POST", f"/pack/{VERSION}"))[0] == 400


@pytest.mark.parametrize(("who", "code"), [("", 401), ("tenant", 403), ("limited", 403), ("admin", 200)])
async def test_artefacts_api_requires_administrator(manager: Manager, who: str, code: int) -> None:
    with AuditLines() as audit:
        for method, path in (("GET", ""), ("PUT", f"/uploads/{SUM}?offset=0")):
            assert (await manager.ask(method, path, CONTENT, who))[0] == code
    assert [line["code"] for line in audit.lines] == [code, code]
    assert (Uploads(manager.store.directory).present(SUM) > 0) == (code == 200)
    if who == "admin":
        assert manager.asked == [
            ("get", f"{ADMINISTRATION}artefacts"),
            ("put", f"{ADMINISTRATION}artefacts/uploads/{SUM}"),
        ]


async def test_unknown_paths_return_404(manager: Manager) -> None:
    assert (await manager.ask("GET", "/nothing"))[0] == 404
    assert (await manager.ask("DELETE", ""))[0] == 404
    assert (await manager.ask("GET", "x"))[0] == 404
