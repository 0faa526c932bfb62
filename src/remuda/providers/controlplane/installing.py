"""What is decided once and then stays: where nodes get a version from, and which way their plans are written.

A version is installed from the files that the manager has of it when it is first wanted, else from the upstream
installer's image. The way plans are written is the newest when a cluster is made; a new release of the manager leaves
it as it is until the user asks for the new one by the annotation `remuda.dev/adopt-renderer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from remuda.kube.waits import Wait
from remuda.providers.controlplane import render
from remuda.providers.controlplane.distros import Distro, Version
from remuda.providers.controlplane.types import Installer, Renderer, RKEControlPlane

ADOPT_RENDERER = "remuda.dev/adopt-renderer"  # annotation of an RKEControlPlane: a number

Lookup = Callable[[str, str], Mapping[str, Mapping[str, str]]]  # distribution, version → arch → name → sha256

_REGISTRY = "system-default-registry"


def nothing(distro: str, version: str) -> Mapping[str, Mapping[str, str]]:
    """A manager without artefacts."""
    return {}


async def installer(plane: RKEControlPlane, distro: Distro, version: Version, lookup: Lookup) -> Installer | Wait:
    present = plane.status.installer
    if present is not None and present.version == version.text and (present.image or present.artefacts):
        return present
    artefacts = await asyncio.to_thread(lookup, distro.name, version.text)
    if artefacts:
        return Installer(version=version.text, artefacts=artefacts)
    if distro.installer_image:
        return Installer(version=version.text, image=_image(plane, distro, version))
    return Wait(
        reason="NoArtefacts",
        on=f"version {version.text}",
        missing=f"the manager has no files of it, and {distro.name} comes from nowhere else",
        then=f"remuda artefacts add {distro.name} {version.text}",
    )


def _image(plane: RKEControlPlane, distro: Distro, version: Version) -> str:
    configured = plane.spec.machine_global_config.get(_REGISTRY)
    prefix = f"{configured}/" if isinstance(configured, str) and configured else ""
    return f"{prefix}{distro.installer_image}:{version.text.replace('+', '-')}"


def renderer(plane: RKEControlPlane) -> Renderer:
    present = plane.status.renderer
    if present is None:
        return Renderer(version=render.CURRENT)
    wanted = plane.metadata.annotations.get(ADOPT_RENDERER, "")
    if wanted.isdigit() and present.version < int(wanted) <= render.CURRENT:
        return Renderer(version=int(wanted))
    return present
