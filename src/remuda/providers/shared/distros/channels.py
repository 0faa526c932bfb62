"""Channels: names such as `stable` and `v1.36` that stand for a version of each distribution, as data. Pure.

The package ships one file of channels. Administrators replace it as a whole, so that a management plane without the
internet offers exactly the versions that it has. A declared cluster never holds the name of a channel: commands resolve
it when they run.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from remuda.kube.untrusted_yaml import load
from remuda.providers.shared.distros import BadVersion, parse_version

STABLE = "stable"
DISTRIBUTIONS = ("k3s", "rke2", "nano")

_NAME = re.compile(r"[a-z][a-z0-9.-]{0,62}", re.ASCII)
_MINOR = re.compile(r"v\d+\.\d+", re.ASCII)
_PLACEHOLDER = "{version}"


class BadChannels(ValueError):
    """Error with a message for users."""


class NoSuchChannel(BadChannels):
    """The distribution has no channel of that name."""


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    channels: Mapping[str, str] = {}  # versions by name
    download: str = ""  # URL of the folder with a release's files; {version} stands for the version
    versions: tuple[str, ...] = ()  # others that exist


class Channels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    distributions: Mapping[str, Distribution]
    date: str = ""
    source: str = ""

    def version(self, distro: str, channel: str) -> str:
        """Return the version that a channel stands for. Raises NoSuchChannel."""
        known = self._of(distro).channels
        if channel not in known:
            named = f"its channels are {', '.join(known)}" if known else "it has no channels"
            raise NoSuchChannel(f"{distro} has no channel {channel!r}: {named}")
        return known[channel]

    def lists(self, version: str) -> bool:
        """Return whether the version is known to exist."""
        return any(version in (*one.channels.values(), *one.versions) for one in self.distributions.values())

    def download(self, distro: str, version: str) -> str:
        """Return the URL of the folder with the files of a release; empty: it is nowhere to be downloaded."""
        # GitHub's own links write the plus sign of a version as %2B.
        return self._of(distro).download.rstrip("/").replace(_PLACEHOLDER, quote(version, safe=""))

    def _of(self, distro: str) -> Distribution:
        return self.distributions.get(distro, Distribution())


def is_channel(text: str) -> bool:
    """Return whether the text could name a channel, and is no version."""
    return _NAME.fullmatch(text) is not None and "+" not in text


@cache
def shipped() -> Channels:
    """Return the channels that this package comes with."""
    return parse(files(__package__).joinpath("channels.yaml").read_bytes(), "the channels of this installation")


def parse(text: bytes, origin: str) -> Channels:
    """Read a file of channels. Raises BadChannels; the message names the field."""
    import yaml

    try:
        raw: Any = load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadChannels(f"{origin} is not valid YAML: {' '.join(str(error).split())}") from None
    if isinstance(raw, dict) and isinstance(raw.get("date"), datetime.date):
        raw["date"] = raw["date"].isoformat()
    try:
        found = msgspec.convert(raw, Channels)
    except msgspec.ValidationError as error:
        raise BadChannels(f"{origin}: {error}") from None
    for name, distribution in found.distributions.items():
        _check(f"{origin}: distributions.{name}", name, distribution)
    return found


def _check(at: str, distro: str, found: Distribution) -> None:
    if distro not in DISTRIBUTIONS:
        raise BadChannels(f"{at}: unknown distribution; known are {', '.join(DISTRIBUTIONS)}")
    for channel, version in found.channels.items():
        if not is_channel(channel):
            raise BadChannels(
                f"{at}.channels: {channel!r} is not a name of a channel: use lower-case letters, digits, '.' and '-'"
            )
        _check_version(f"{at}.channels.{channel}", distro, version)
        if _MINOR.fullmatch(channel) and not version.startswith(f"{channel}."):
            raise BadChannels(f"{at}.channels.{channel}: {version} is not a version of {channel}")
    for version in found.versions:
        _check_version(f"{at}.versions", distro, version)
    if found.download:
        parts = urlsplit(found.download)
        if parts.scheme != "https" or not parts.hostname or parts.username or _PLACEHOLDER not in parts.path:
            raise BadChannels(f"{at}.download: {found.download!r} must be an https URL with {_PLACEHOLDER} in its path")


def _check_version(at: str, distro: str, text: str) -> None:
    try:
        version = parse_version(text)
    except BadVersion as error:
        raise BadChannels(f"{at}: {error}") from None
    if version.distro != distro:
        raise BadChannels(f"{at}: {text} is a version of {version.distro}")
