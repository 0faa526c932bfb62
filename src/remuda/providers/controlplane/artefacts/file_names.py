"""Map the file name given by its publisher to the artefact it is. Pure.

Every file has exactly one name in the store, whatever its publishers call it: install scripts ask for that name. The
image archives are those of the distributions' contracts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from remuda.providers.shared.distros.contract import Contract
from remuda.providers.shared.distros.k3s import K3S
from remuda.providers.shared.distros.rke2 import RKE2

_ARCHITECTURES = {"amd64": "amd64", "x86_64": "amd64", "arm64": "arm64", "aarch64": "arm64"}
_ARCHITECTURES |= {"arm": "arm", "armhf": "arm", "s390x": "s390x"}
_ARCHITECTURE = "(?P<arch>amd64|arm64|armhf|arm|s390x)"


def _archives(contract: Contract) -> dict[str, str]:
    return {
        f"{re.escape(archive.file).replace('<arch>', _ARCHITECTURE)}|{re.escape(archive.name)}": archive.name
        for archive in contract.archives
    }


_PATTERNS = {
    "k3s": {rf"k3s(-{_ARCHITECTURE})?": "k3s", **_archives(K3S.contract)},
    "rke2": {rf"rke2\.linux-{_ARCHITECTURE}\.tar\.gz|rke2\.tar\.gz": "rke2.tar.gz", **_archives(RKE2.contract)},
    "nano": {r"(?P<arch>)nano\.tar\.gz": "nano.tar.gz"},
}
_SUMS = re.compile(rf"sha256sum-{_ARCHITECTURE}\.txt|SHA256SUMS")


# k3s and its list of checksums call 32-bit arm by two names, and amd64 is the architecture without one.
_PROGRAMS = {"k3s": {"amd64": "k3s", "arm": "k3s-armhf"}}
_PROGRAM = {"k3s": "k3s-{arch}", "rke2": "rke2.linux-{arch}.tar.gz"}


class Unknown(ValueError):
    """Unknown file name, with a message for users."""


class ArtefactName(NamedTuple):
    name: str  # in the store
    arch: str  # empty: the name does not contain it


def named(distro: str, file: str) -> ArtefactName:
    """Raises Unknown."""
    patterns = _PATTERNS.get(distro)
    if patterns is None:
        raise Unknown(f"unknown distribution {distro!r}: known are {', '.join(_PATTERNS)}")
    for pattern, name in patterns.items():
        match = re.fullmatch(pattern, file)
        if match:
            found = match["arch"]
            return ArtefactName(name, _ARCHITECTURES[found] if found else "")
    raise Unknown(f"{file} is not a known artefact of {distro}: its name must be {_possible(distro)}")


def check_stored(distro: str, name: str) -> None:
    """Raises Unknown for what no install script asks for."""
    if named(distro, name).name != name:
        raise Unknown(f"{name} must be stored as {named(distro, name).name}")


def program(distro: str, arch: str) -> str:
    """Return the released name of the file with the distribution's program. Raises Unknown."""
    if distro not in _PROGRAM:
        raise Unknown(f"unknown distribution {distro!r}: releases of {', '.join(_PROGRAM)} can be downloaded")
    return _PROGRAMS.get(distro, {}).get(arch) or _PROGRAM[distro].format(arch=arch)


def list_of_sums(arch: str) -> str:
    """Return the released name of the list of checksums."""
    return f"sha256sum-{arch}.txt"


def is_list_of_sums(file: str) -> bool:
    """Return whether the file is a list of checksums as releases have one: checksums of the files beside it."""
    return _SUMS.fullmatch(file) is not None


def _possible(distro: str) -> str:
    return {
        "k3s": f"k3s, k3s-<arch>, or {_files(K3S.contract)}",
        "rke2": f"rke2.linux-<arch>.tar.gz (rke2.tar.gz), or {_files(RKE2.contract)}",
        "nano": "nano.tar.gz",
    }[distro]


def _files(contract: Contract) -> str:
    return ", ".join(dict.fromkeys(f"{archive.file} ({archive.name})" for archive in contract.archives))


def architecture(machine: str) -> str:
    """Map `uname -m` to our architecture name."""
    return _ARCHITECTURES.get(machine, machine)


def sums(text: str) -> dict[str, str]:
    """By file name, from lines as sha256sum writes them."""
    found = re.findall(r"^([0-9a-fA-F]{64}) [ *](\S+)$", text, re.MULTILINE)
    return {name.removeprefix("./"): value.lower() for value, name in found}
