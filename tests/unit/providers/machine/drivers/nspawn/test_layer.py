"""The layer of a host, as far as it goes without root: folders look as they do below, files as they are told to."""

from __future__ import annotations

import os
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from remuda.providers.shared.drivers.nspawn import contents
from remuda.providers.shared.drivers.nspawn.bridges import NetworkAddress
from remuda.providers.shared.drivers.nspawn.layers import Layer
from remuda.providers.shared.drivers.spi import BadOptions

ME = (os.getuid(), os.getgid())


@pytest.fixture
def layer(tmp_path: Path) -> Layer:
    (tmp_path / "upper").mkdir()
    (tmp_path / "lower/etc/ssh").mkdir(parents=True)
    (tmp_path / "lower/etc/ssh").chmod(0o711)
    return Layer(tmp_path / "upper", tmp_path / "lower")


def test_layer_keeps_directory_modes_and_sets_file_modes(layer: Layer, tmp_path: Path) -> None:
    layer.write("etc/ssh/key", "content", mode=0o600, owner=ME)
    layer.write("/etc/ssh/key", b"other", mode=0o640, owner=ME)
    layer.link("etc/units/a.service", "/dev/null")
    written = tmp_path / "upper/etc/ssh/key"
    assert (written.read_text(), written.stat().st_mode & 0o777) == ("other", 0o640)
    assert (tmp_path / "upper/etc/ssh").stat().st_mode & 0o777 == 0o711
    assert os.readlink(tmp_path / "upper/etc/units/a.service") == "/dev/null"


def test_hiding_missing_file_changes_nothing(layer: Layer, tmp_path: Path) -> None:
    layer.hide("etc/fstab")
    assert list((tmp_path / "upper").iterdir()) == []


def _contents(**changes: object) -> contents.Contents:
    place = NetworkAddress(IPv4Address("198.18.0.2"), IPv4Address("198.18.0.1"), 24)
    values = {
        "uid": "u", "hostname": "h", "place": place, "ssh_user": "root", "client_public_key": "",
        "host_private_key": "",
        "dns": (), "user_data": None, "hidden": (), "whole_machine": False,
    }  # fmt: skip
    return contents.Contents(**{**values, **changes})  # type: ignore[arg-type]


def test_image_without_required_program_is_rejected(layer: Layer, tmp_path: Path) -> None:
    said = []
    for program in ("usr/lib/systemd/systemd", "usr/lib/systemd/systemd-networkd", "usr/sbin/sshd"):
        with pytest.raises(BadOptions) as caught:
            contents.write(layer, _contents(user_data=b"x"))
        said.append(str(caught.value))
        (tmp_path / "lower" / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lower" / program).touch()
    with pytest.raises(BadOptions, match=r"bootstrap: the image has no cloud-init"):
        contents.write(layer, _contents(user_data=b"x"))
    assert ["systemd-networkd" in text for text in said] == [False, True, False]
    assert said[2] == "image: usr/sbin/sshd is missing; install openssh-server in the image"
