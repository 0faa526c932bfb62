"""Choices that are made once and then kept: the source nodes install a version from, and the renderer of their plans.

A version is installed from the files that the manager has of it when it is first wanted, else from the upstream
installer's image. If a configuration later needs further image archives, they are added once the manager has them. A
new cluster gets the newest renderer; a new release of the manager keeps it until the user requests the new one by the
annotation `remuda.dev/adopt-renderer`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.kube.wait import Wait
from remuda.providers.controlplane import render
from remuda.providers.controlplane.artefacts import images
from remuda.providers.shared.distros import Distro, Version
from remuda.providers.shared.types.controlplane import Installer, Renderer, RKEControlPlane
from remuda.runtime.tasks import Tasks

log = logging.getLogger(__name__)

ADOPT_RENDERER = "remuda.dev/adopt-renderer"  # annotation of an RKEControlPlane: a number

Lookup = Callable[[str, str], Mapping[str, Mapping[str, str]]]  # distribution, version → arch → name → sha256
Pack = Callable[[str, str], Awaitable[None]]  # distribution, version; raises where it cannot

AGAIN_SECONDS = 15.0  # files that appear in the store tell nobody, and what has failed is tried again
_REGISTRY = "system-default-registry"


def nothing(distro: str, version: str) -> Mapping[str, Mapping[str, str]]:
    """Return no files: lookup of a manager without artefacts."""
    return {}


async def installer(
    plane: RKEControlPlane, distro: Distro, version: Version, lookup: Lookup, bundles: Bundles
) -> Installer | Wait:
    """Return at once where nodes get a version from, or what that waits for."""
    present = plane.status.installer
    if present is not None and present.version == version.text and (present.image or present.artefacts):
        if images.lacking(distro, version, plane.spec, present.artefacts) is None:
            return present
    else:
        present = None
    artefacts = await asyncio.to_thread(lookup, distro.name, version.text)
    if (lacking := images.lacking(distro, version, plane.spec, artefacts)) is not None:
        return present or lacking  # what is installed already stays
    if artefacts:
        chosen = {arch: images.chosen(distro, version, plane.spec, files) for arch, files in artefacts.items()}
        return Installer(version=version.text, artefacts=chosen)
    if distro.installer_image:
        return Installer(version=version.text, image=_image(plane, distro, version))
    return bundles.wait(plane.key, distro.name, version.text) or Wait(
        reason="NoArtefacts",
        on=f"version {version.text}",
        missing=f"the manager has no files of it, and {distro.name} comes from nowhere else",
        then=f"remuda artefacts add {distro.name} {version.text}",
    )


@dataclass
class _Bundle:
    since: float
    waiting: set[Key] = field(default_factory=set)
    under_way: bool = False
    failure: str = ""
    retry_at: float = 0.0


class Bundles:
    """Bundles that the manager packs itself, one for each version, beside the control planes that wait for them."""

    def __init__(self, pack: Pack | None, tasks: Tasks, wake: Callable[[Key], None]) -> None:
        self._pack = pack
        self._tasks = tasks
        self._wake = wake
        self._bundles: dict[tuple[str, str], _Bundle] = {}

    def wait(self, key: Key, distro: str, version: str) -> Wait | None:
        """Begin to pack, unless it is being packed, and return what is waited for; `key` is woken when it is there.
        None: nothing is packed here."""
        if self._pack is None:
            return None
        now = clock.time()
        bundle = self._bundles.setdefault((distro, version), _Bundle(now))
        bundle.waiting.add(key)
        if not bundle.under_way and now >= bundle.retry_at:
            bundle.under_way = True
            self._tasks.spawn(f"pack {distro} {version}", self._run(self._pack, bundle, distro, version))
        if bundle.failure:
            missing, then = f"{distro} cannot be packed: {bundle.failure}", "it is tried again by itself"
            return Wait(reason="PackingFailed", on=f"version {version}", missing=missing, since=bundle.since, then=then)
        missing, then = f"packing {distro} {version} from the manager's own installation", "plans are made then"
        return Wait(reason="Packing", on=f"version {version}", missing=missing, since=bundle.since, then=then)

    async def _run(self, pack: Pack, bundle: _Bundle, distro: str, version: str) -> None:
        try:
            await pack(distro, version)
        except Exception as error:
            now = clock.time()
            if not bundle.failure:
                bundle.since = now
            bundle.failure, bundle.retry_at = str(error) or type(error).__name__, now + AGAIN_SECONDS
            log.warning("cannot pack %s %s: %s", distro, version, bundle.failure)
        else:
            self._bundles.pop((distro, version), None)
        finally:
            bundle.under_way = False
        waiting, bundle.waiting = bundle.waiting, set()
        for key in waiting:
            self._wake(key)


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
