"""`remuda artefacts` as its users run it, beside a server that runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.e2e.program import Ended, run

VERSION = "v1.36.4+k3s1"
CONTENT = b"a program"
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "k3s-arm64").write_bytes(CONTENT)
    (tmp_path / "k3s-airgap-images-arm64.tar.zst").write_bytes(b"images")
    return tmp_path


def artefacts(folder: Path, *words: str) -> Ended:
    return run("artefacts", *words, "--artefacts", folder / "store", cwd=folder)


def test_files_of_a_release_are_kept_listed_and_verified(folder: Path) -> None:
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
        (("k3s", "v1.36.4", "k3s-arm64"), "no version of a distribution"),
        (("k3s", "v1.36.4+rke2r1", "k3s-arm64"), "is a version of rke2"),
        (("k3s", VERSION, "k3s-arm64", "--arch", "amd64"), "more than one architecture"),
        (("k3s", VERSION, "k3s-arm64", "--sha256", "0" * 64), "not what was promised"),
        (("k3s", VERSION), "which files"),
        (("rke2", "v1.36.4+rke2r1", "k3s-arm64"), "must be called"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_words(folder: Path, words: tuple[str, ...], complaint: str) -> None:
    ended = artefacts(folder, "add", *words)
    assert ended.code in (1, 2)
    assert complaint in ended.err
    assert "Traceback" not in ended.err
    assert artefacts(folder, "list").out == ""


def test_other_bytes_need_to_be_asked_for(folder: Path) -> None:
    assert artefacts(folder, "add", "k3s", VERSION, "k3s-arm64").code == 0
    (folder / "k3s-arm64").write_bytes(b"another")
    refused = artefacts(folder, "add", "k3s", VERSION, "k3s-arm64")
    assert refused.code == 1
    assert "--replace" in refused.err
    assert artefacts(folder, "add", "k3s", VERSION, "k3s-arm64", "--replace").code == 0


def test_they_are_kept_where_the_other_commands_look_unless_something_else_is_said(folder: Path) -> None:
    assert run("artefacts", "add", "k3s", VERSION, "k3s-arm64", cwd=folder).code == 0
    assert (folder / "remuda-data/artefacts/k3s" / VERSION / "arm64/k3s").read_bytes() == CONTENT
    assert VERSION in run("artefacts", "list", cwd=folder).out
    assert VERSION in run("artefacts", "list", "--data-dir", "remuda-data", cwd=folder).out
    both = run("artefacts", "list", "--data-dir", "remuda-data", "--artefacts", "store", cwd=folder)
    assert both.code == 2
    assert "either --data-dir or --artefacts" in both.err
