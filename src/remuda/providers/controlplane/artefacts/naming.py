"""Which artefact a file is: told by the name its maker has given it. Pure.

Every file has one name in the store, whatever its makers call it: install scripts ask for that one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

IMAGES = "images.tar.zst"

_ARCHITECTURES = {"amd64": "amd64", "x86_64": "amd64", "arm64": "arm64", "aarch64": "arm64"}
_ARCHITECTURES |= {"arm": "arm", "armhf": "arm", "s390x": "s390x"}
_ARCHITECTURE = "(?P<arch>amd64|arm64|armhf|arm|s390x)"
_PATTERNS = {
    "k3s": {
        rf"k3s(-{_ARCHITECTURE})?": "k3s",
        rf"k3s-airgap-images-{_ARCHITECTURE}\.tar\.zst|images\.tar\.zst": IMAGES,
    },
    "rke2": {
        rf"rke2\.linux-{_ARCHITECTURE}\.tar\.gz|rke2\.tar\.gz": "rke2.tar.gz",
        rf"rke2-images\.linux-{_ARCHITECTURE}\.tar\.zst|images\.tar\.zst": IMAGES,
    },
    "nano": {r"(?P<arch>)nano\.tar\.gz": "nano.tar.gz"},
}
_SUMS = re.compile(rf"sha256sum-{_ARCHITECTURE}\.txt|SHA256SUMS")


class Unknown(ValueError):
    """In words."""


class Named(NamedTuple):
    name: str  # in the store
    arch: str  # empty: the name does not say


def named(distro: str, file: str) -> Named:
    """Raises Unknown."""
    patterns = _PATTERNS.get(distro)
    if patterns is None:
        raise Unknown(f"no distribution is called {distro!r}: there are {', '.join(_PATTERNS)}")
    for pattern, name in patterns.items():
        match = re.fullmatch(pattern, file)
        if match:
            found = match["arch"]
            return Named(name, _ARCHITECTURES[found] if found else "")
    raise Unknown(f"{file} is no artefact of {distro} that is known here: it must be called {_possible(distro)}")


def is_list_of_sums(file: str) -> bool:
    """As releases have one: checksums of files that are beside it."""
    return _SUMS.fullmatch(file) is not None


def _possible(distro: str) -> str:
    return {
        "k3s": "k3s, k3s-<arch>, or k3s-airgap-images-<arch>.tar.zst (images.tar.zst)",
        "rke2": "rke2.linux-<arch>.tar.gz (rke2.tar.gz), or rke2-images.linux-<arch>.tar.zst (images.tar.zst)",
        "nano": "nano.tar.gz",
    }[distro]


def architecture(machine: str) -> str:
    """What a machine that calls itself so is called here."""
    return _ARCHITECTURES.get(machine, machine)


def sums(text: str) -> dict[str, str]:
    """By file name, from lines as sha256sum writes them."""
    found = re.findall(r"^([0-9a-fA-F]{64}) [ *](\S+)$", text, re.MULTILINE)
    return {name.removeprefix("./"): value.lower() for value, name in found}
