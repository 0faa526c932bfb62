"""nano's artefacts, made when they are wanted."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from remuda.providers.controlplane.artefacts import Artefacts, bundle
from remuda.providers.controlplane.artefacts.packing import VERSION, Packing


def test_nano_is_there_as_soon_as_somebody_looks_for_it(tmp_path: Path) -> None:
    store = Packing(tmp_path / "store")
    found = store.lookup("nano", VERSION)
    assert set(found[bundle.architecture()]) == {bundle.NAME}
    [kept] = Artefacts(tmp_path / "store").every()
    assert (kept.version, Artefacts(tmp_path / "store").verify(kept)) == (VERSION, "")
    made = (tmp_path / "store" / "nano" / VERSION / kept.arch / kept.name).stat().st_mtime_ns
    assert store.lookup("nano", VERSION) == found
    assert (tmp_path / "store" / "nano" / VERSION / kept.arch / kept.name).stat().st_mtime_ns == made


def test_of_other_distributions_only_what_was_added_is_there(tmp_path: Path) -> None:
    assert Packing(tmp_path / "store").lookup("k3s", "v1.36.4+k3s1") == {}
    assert not (tmp_path / "store").exists()


def test_what_cannot_be_packed_is_told_and_not_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        assert Packing(tmp_path / "file" / "store").lookup("nano", VERSION) == {}
    assert f"nano {VERSION} cannot be packed" in caplog.text
    assert "Not a directory" in caplog.text
