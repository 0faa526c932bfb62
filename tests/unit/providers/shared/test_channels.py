"""Channels: the shipped data, what a file may hold, and the URL of a release."""

import pytest

from remuda.providers.controlplane.artefacts import nano_bundles
from remuda.providers.shared.distros import parse_version
from remuda.providers.shared.distros.channels import BadChannels, NoSuchChannel, is_channel, parse, shipped

OWN = b"""
distributions:
  k3s:
    download: https://mirror.example.com/k3s/{version}/
    channels: {stable: v1.35.2+k3s1, v1.35: v1.35.2+k3s1}
    versions: [v1.35.1+k3s1]
"""


def test_shipped_channels_have_source_date_and_every_distribution() -> None:
    found = shipped()
    assert found.source
    assert found.date
    for distro, one in found.distributions.items():
        assert {"stable", "latest", "v1.36"} <= set(one.channels), distro
        assert parse_version(one.channels["stable"]) <= parse_version(one.channels["latest"])
    assert found.version("nano", "stable") == nano_bundles.VERSION
    assert found.download("k3s", "v1.36.4+k3s1").endswith("/k3s-io/k3s/releases/download/v1.36.4%2Bk3s1")
    assert found.download("nano", nano_bundles.VERSION) == ""


def test_own_channels_replace_shipped_ones_as_a_whole() -> None:
    found = parse(OWN, "own.yaml")
    assert found.version("k3s", "v1.35") == "v1.35.2+k3s1"
    assert found.lists("v1.35.1+k3s1")
    assert not found.lists("v1.36.4+k3s1")
    assert found.download("k3s", "v1.35.2+k3s1") == "https://mirror.example.com/k3s/v1.35.2%2Bk3s1"
    with pytest.raises(NoSuchChannel, match=r"k3s has no channel 'latest': its channels are stable, v1\.35"):
        found.version("k3s", "latest")
    with pytest.raises(NoSuchChannel, match="rke2 has no channel 'stable': it has no channels"):
        found.version("rke2", "stable")


def test_version_is_no_channel() -> None:
    assert [is_channel(text) for text in ("stable", "v1.36", "v1.36.4+k3s1", "Stable", "")] == [True, True, False] + [
        False
    ] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "f.yaml is not valid YAML"),
        ("[]", "f.yaml: Expected `object`"),
        ("distributions: {k9s: {}}", "f.yaml: distributions.k9s: unknown distribution"),
        ("distributions: {k3s: {channel: {}}}", "unknown field `channel`"),
        ("distributions: {k3s: {channels: {stable: '1.36'}}}", "distributions.k3s.channels.stable: '1.36' is not a"),
        ("distributions: {k3s: {channels: {stable: v1.36.4+rke2r1}}}", "v1.36.4\\+rke2r1 is a version of rke2"),
        ("distributions: {k3s: {channels: {v1.35: v1.36.4+k3s1}}}", "v1.36.4\\+k3s1 is not a version of v1.35"),
        ("distributions: {k3s: {channels: {Best!: v1.36.4+k3s1}}}", "'Best!' is not a name of a channel"),
        ("distributions: {k3s: {download: 'http://x/{version}'}}", "must be an https URL"),
        ("distributions: {k3s: {download: 'https://x/latest'}}", "with {version} in its path"),
    ],
)
def test_bad_file_of_channels_names_the_field(text: str, said: str) -> None:
    with pytest.raises(BadChannels, match=said):
        parse(text.encode(), "f.yaml")
