"""Selection of the image for this host from an image index."""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

_MACHINES = {
    "x86_64": ("amd64", ""),
    "amd64": ("amd64", ""),
    "aarch64": ("arm64", "v8"),
    "arm64": ("arm64", "v8"),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "i686": ("386", ""),
    "s390x": ("s390x", ""),
    "ppc64le": ("ppc64le", ""),
    "riscv64": ("riscv64", ""),
}


class Platform(NamedTuple):
    os: str
    architecture: str
    variant: str

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


def this_host() -> Platform:
    machine = platform.machine()
    architecture, variant = _MACHINES.get(machine, (machine, ""))
    return Platform(platform.system().lower(), architecture, variant)


def choose(manifests: Any, host: Platform) -> dict[str, Any] | None:
    """Return the entry of an index for this host: its own variant if there is one, else the first with none or an older
    one.

    An entry without a platform is used only if it is the only one.
    """
    entries = [entry for entry in manifests if isinstance(entry, dict)] if isinstance(manifests, list) else []
    fitting = [entry for entry in entries if _fits(entry.get("platform"), host)]
    fitting.sort(key=lambda entry: entry["platform"].get("variant") or "", reverse=True)
    if fitting:
        return fitting[0]
    return entries[0] if len(entries) == 1 and not entries[0].get("platform") else None


def offered(manifests: Any) -> str:
    """Return the platforms of an index, for a message."""
    found = set()
    for entry in manifests if isinstance(manifests, list) else []:
        of = entry.get("platform") if isinstance(entry, dict) else None
        if isinstance(of, dict):
            found.add(f"{of.get('os')}/{of.get('architecture')}")
    # Indexes list attestations as images with this platform.
    return ", ".join(sorted(found - {"unknown/unknown"})) or "nothing"


def _fits(of: Any, host: Platform) -> bool:
    if not isinstance(of, dict) or (of.get("os"), of.get("architecture")) != (host.os, host.architecture):
        return False
    variant = of.get("variant") or ""
    # Variants compare as text: v6 is older than v7.
    return isinstance(variant, str) and (not variant or variant <= host.variant)
