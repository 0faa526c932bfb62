"""`remuda artefacts` and `remuda leaks` as their users run them, with a server that runs and without."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.providers.controlplane.artefacts.administration import MOST_PIECE
from tests.e2e.program import Ended, run
from tests.e2e.test_up import Up

VERSION = "v1.36.4+k3s1"
CONTENT = b"a program"
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "k3s-arm64").write_bytes(CONTENT)
    (tmp_path / "k3s-airgap-images-arm64.tar.zst").write_bytes(b"images")
    (tmp_path / "channels.yaml").write_text(f"distributions: {{k3s: {{versions: [{VERSION}]}}}}")  # no download
    return tmp_path


def artefacts(folder: Path, *words: str) -> Ended:
    return run("artefacts", *words, "--artefacts", folder / "store", cwd=folder)


def test_release_files_are_stored_listed_and_verified(folder: Path) -> None:
    (folder / "sha256sum-arm64.txt").write_text(
        f"{SUM}  k3s-arm64\n{hashlib.sha256(b'images').hexdigest()}  k3s-airgap-images-arm64.tar.zst\n"
    )
    files = ["k3s-arm64", "k3s-airgap-images-arm64.tar.zst", "sha256sum-arm64.txt"]
    added = artefacts(folder, "add", "k3s", VERSION, *files)
    assert added.code == 0, added
    listed = artefacts(folder, "list").out.splitlines()
    assert [line.split()[:4] for line in listed] == [
        ["k3s", VERSION, "arm64", "images.tar.zst"],
        ["k3s", VERSION, "arm64", "k3s"],
    ]
    assert artefacts(folder, "verify").code == 0
    (folder / "store/k3s" / VERSION / "arm64/k3s").write_bytes(b"worm")
    worm = artefacts(folder, "verify")
    assert worm.code == 1
    assert "checksum" in worm.out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("k3s", "v1.36.4", "k3s-arm64"), "k3s has no channel 'v1.36.4'"),
        (("k3s", "v1.36.4+rke2r1", "k3s-arm64"), "is a version of rke2"),
        (("k3s", VERSION, "k3s-arm64", "--arch", "amd64"), "several architectures"),
        (("k3s", VERSION, "k3s-arm64", "--sha256", "0" * 64), "wrong checksum of"),
        (("k3s", VERSION, "--channels", "channels.yaml"), "missing FILE"),
        (("rke2", "v1.36.4+rke2r1", "k3s-arm64"), "its name must be"),
    ],
)
def test_unsupported_artefact_arguments_are_rejected_with_reason(
    folder: Path, words: tuple[str, ...], complaint: str
) -> None:
    ended = artefacts(folder, "add", *words)
    assert ended.code in (1, 2)
    assert complaint in ended.err
    assert "Traceback" not in ended.err
    assert artefacts(folder, "list").out == ""


def test_changed_artefact_requires_replace_flag(folder: Path) -> None:
    assert artefacts(folder, "add", "k3s", VERSION, "k3s-arm64").code == 0
    (folder / "k3s-arm64").write_bytes(b"another")
    refused = artefacts(folder, "add", "k3s", VERSION, "k3s-arm64")
    assert refused.code == 1
    assert "--replace" in refused.err
    assert artefacts(folder, "add", "k3s", VERSION, "k3s-arm64", "--replace").code == 0


def test_data_dir_and_artefacts_options_are_mutually_exclusive(folder: Path) -> None:
    both = run("artefacts", "list", "--data-dir", "remuda-data", "--artefacts", "store", cwd=folder)
    assert both.code == 2
    assert "exclude each other" in both.err


def test_artefacts_add_without_server_stores_nothing_locally(folder: Path) -> None:
    ended = run("artefacts", "add", "k3s", VERSION, "k3s-arm64", "--kubeconfig", "none", cwd=folder)
    assert ended.code == 4
    assert not (folder / "remuda-data").exists()


# ---- at a server


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    found = Up(tmp_path_factory.mktemp("server") / "data", "--user-quota", "clusters=1")
    try:
        yield found
    finally:
        found.stop()


def at(up: Up, folder: Path, *words: str) -> Ended:
    """From another folder, as from another machine."""
    return run(*words, "--kubeconfig", up.data / "admin.kubeconfig", cwd=folder)


def test_files_are_uploaded_to_the_server_of_the_kubeconfig(up: Up, folder: Path) -> None:
    large = b"large" * (MOST_PIECE // 4)
    (folder / "k3s-airgap-images-arm64.tar.zst").write_bytes(large)
    added = at(up, folder, "artefacts", "add", "k3s", VERSION, "k3s-arm64", "k3s-airgap-images-arm64.tar.zst")
    assert added.code == 0, added
    kept = up.data / "artefacts/k3s" / VERSION / "arm64"
    assert (kept / "k3s").read_bytes() == CONTENT
    assert (kept / "images.tar.zst").read_bytes() == large
    assert list((up.data / "artefacts/.uploads").iterdir()) == []
    listed = json.loads(at(up, folder, "artefacts", "list", "-o", "json").out)
    assert [(one["name"], one["bytes"]) for one in listed] == [("images.tar.zst", len(large)), ("k3s", len(CONTENT))]
    assert at(up, folder, "artefacts", "verify").code == 0
    (kept / "k3s").write_bytes(b"worm")
    worm = at(up, folder, "artefacts", "verify")
    assert (worm.code, "checksum" in worm.out) == (1, True)
    refused = at(up, folder, "artefacts", "add", "k3s", VERSION, "k3s-arm64", "--sha256", "0" * 64)
    assert (refused.code, "wrong checksum of" in refused.err) == (1, True)


def test_artefacts_commands_require_administrator(up: Up, folder: Path) -> None:
    made = at(up, folder, "user", "create", "rider")
    assert made.code == 0, made
    token = at(up, folder, "token", "create", "--user", "rider", "-o", "kubeconfig")
    assert token.code == 0, token
    (folder / "rider.kubeconfig").write_text(token.out)
    for words in (("list",), ("add", "k3s", VERSION, "k3s-arm64"), ("verify",)):
        refused = run("artefacts", *words, "--kubeconfig", "rider.kubeconfig", cwd=folder)
        assert (refused.code, "this is for administrators" in refused.err) == (1, True), refused
    looked = run("leaks", "--driver", "process", "--kubeconfig", "rider.kubeconfig", cwd=folder)
    assert looked.code in (1, 2), looked
    assert "no leaks" not in looked.err


def test_leaks_command_checks_hosts_on_server(up: Up, folder: Path) -> None:
    found = at(up, folder, "leaks")
    assert (found.code, found.out) == (0, ""), found
    assert f"process in {up.data / 'hosts'} of " in found.err
    nobody = at(up, folder, "leaks", "--driver", "foo")
    assert nobody.code == 2
    assert "foo: NodeDriver not found; known drivers: amazonec2" in nobody.err
    assert "no leaks" not in nobody.err


def test_leaks_rejects_missing_hosts_folder(up: Up, folder: Path) -> None:
    found = at(up, folder, "leaks", "--hosts", "nowhere")
    assert found.code == 2
    assert "no such folder" in found.err
