"""Choices that are made once and then kept: the source nodes install a version from, and the renderer of their plans.

A version is installed from the files that the manager has of it when it is first wanted, else from the upstream
installer's image. If a configuration later needs further image archives, they are added once the manager has them. A
new cluster gets the newest renderer; a new release of the manager keeps it until the user requests the new one by the
annotation `remuda.dev/adopt-renderer`.

If the manager has no archive of images at all, nodes pull images, and nothing is missing. If it has some, nodes may
have no registry to pull the others from: missing archives are reported before the first plan, not by a Pod that never
starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from remuda.kube import clock
from remuda.kube.objects import Key
from remuda.kube.wait import Wait
from remuda.providers.controlplane import render
from remuda.providers.shared.distros import Distro, Version
from remuda.providers.shared.distros.contract import Archive, listed
from remuda.providers.shared.types.configuration import ClusterConfiguration
from remuda.providers.shared.types.controlplane import Installer, Renderer, RKEControlPlane
from remuda.runtime.tasks import Tasks

log = logging.getLogger(__name__)

ADOPT_RENDERER = "remuda.dev/adopt-renderer"  # annotation of an RKEControlPlane: a number

Lookup = Callable[[str, str], Mapping[str, Mapping[str, str]]]  # distribution, version → arch → name → sha256
Pack = Callable[[str, str], Awaitable[None]]  # distribution, version; raises where it cannot

AGAIN_SECONDS = 15.0  # no event reports new files in the store, and failures are retried
_REGISTRY = "system-default-registry"
Files = Mapping[str, str]  # name → sha256

_DISABLED = "disable"


def nothing(distro: str, version: str) -> Mapping[str, Mapping[str, str]]:
    """Return no files: lookup of a manager without artefacts."""
    return {}


async def installer(
    plane: RKEControlPlane, distro: Distro, version: Version, lookup: Lookup, bundles: Bundles
) -> Installer | Wait:
    """Return at once where nodes get a version from, or what that waits for."""
    present = plane.status.installer
    if present is not None and present.version == version.text and (present.image or present.artefacts):
        if missing_images(distro, version, plane.spec, present.artefacts) is None:
            return present
    else:
        present = None
    artefacts = await asyncio.to_thread(lookup, distro.name, version.text)
    if (lacking := missing_images(distro, version, plane.spec, artefacts)) is not None:
        return present or lacking  # an existing installation stays
    if artefacts:
        chosen = {arch: chosen_files(distro, version, plane.spec, files) for arch, files in artefacts.items()}
        return Installer(version=version.text, artefacts=chosen)
    if distro.installer_image:
        return Installer(version=version.text, image=_image(plane, distro, version))
    return bundles.wait(plane.key, distro.name, version.text) or Wait(
        reason="NoArtefacts",
        on=f"version {version.text}",
        missing=f"the manager has no files of it, and {distro.name} has no other source",
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
        """Start packing, unless it is in progress, and return the wait; `key` is requeued when it is done. None:
        nothing is packed here.
        """
        if self._pack is None:
            return None
        now = clock.time()
        bundle = self._bundles.setdefault((distro, version), _Bundle(now))
        bundle.waiting.add(key)
        if not bundle.under_way and now >= bundle.retry_at:
            bundle.under_way = True
            self._tasks.spawn(f"pack {distro} {version}", self._run(self._pack, bundle, distro, version))
        if bundle.failure:
            missing, then = f"cannot pack {distro}: {bundle.failure}", "the manager retries by itself"
            return Wait(reason="PackingFailed", on=f"version {version}", missing=missing, since=bundle.since, then=then)
        missing, then = (
            f"packing {distro} {version} from the manager's own installation",
            "the controller writes plans then",
        )
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


# ---- archives of images -------------------------------------------------------------------------------------------


def needed_images(distro: Distro, version: Version, config: ClusterConfiguration) -> set[str]:
    """Return the sets of images that nodes of this configuration run."""
    found = {"core"}
    configs = [config.machine_global_config, *(entry.config for entry in config.machine_selector_config)]
    disabled = {item for one in configs for item in _items(one.get(_DISABLED))}
    for choice in distro.contract.image_choices:
        if choice.holds(version):
            given = [item for one in configs for item in _items(one.get(choice.key))]
            default = _items(distro.defaults.get(choice.key)) or choice.default
            found |= {choice.sets[item] for item in given or default if item in choice.sets}
    return {name for name in found if f"{distro.name}-{name}" not in disabled}


def default_archives(distro: Distro, version: Version, arch: str) -> list[str]:
    """Return the released names of the image archives that a cluster without settings of its own needs."""
    archives = _bringing(distro, version, needed_images(distro, version, ClusterConfiguration()))
    return [archive.file.replace("<arch>", arch) for archive in archives]


def chosen_files(distro: Distro, version: Version, config: ClusterConfiguration, files: Files) -> dict[str, str]:
    """Return the files that nodes get: as few archives as contain everything needed."""
    offered = {archive.name: archive for archive in _archives(distro, version) if archive.name in files}
    missing, taken = needed_images(distro, version, config), set[str]()
    while missing:
        best = max(offered.values(), key=lambda one: (len(missing & set(one.images)), -len(one.images)), default=None)
        if best is None or not missing & set(best.images):
            break
        missing -= set(best.images)
        taken.add(best.name)
    return {name: value for name, value in files.items() if name not in offered or name in taken}


def missing_images(
    distro: Distro, version: Version, config: ClusterConfiguration, artefacts: Mapping[str, Files]
) -> Wait | None:
    """Return the wait for archives that nodes would have to pull, where nothing is named to pull them from."""
    if (config.registries is not None and config.registries.mirrors) or config.machine_global_config.get(_REGISTRY):
        return None
    wanted = needed_images(distro, version, config)
    absent = {arch: wanted - held for arch, files in artefacts.items() if (held := _held(distro, version, files))}
    files = [
        archive.file.replace("<arch>", arch)
        for arch, sets in sorted(absent.items())
        for archive in _bringing(distro, version, sets)
    ]
    if not files:
        return None
    sets = ", ".join(sorted(set().union(*absent.values())))
    return Wait(
        reason="ImagesMissing",
        on=f"version {version.text}",
        missing=f"the manager has image archives of it, but none for {sets}, and no registry is configured",
        then=f"remuda artefacts add {distro.name} {version.text} {' '.join(files)}",
    )


def _held(distro: Distro, version: Version, files: Files) -> set[str]:
    return {name for archive in _archives(distro, version) if archive.name in files for name in archive.images}


def _bringing(distro: Distro, version: Version, sets: Iterable[str]) -> list[Archive]:
    """The smallest archive for each."""
    archives = _archives(distro, version)
    holding = ([archive for archive in archives if name in archive.images] for name in sorted(sets))
    found = [min(some, key=lambda archive: len(archive.images)) for some in holding if some]
    return list({archive.name: archive for archive in found}.values())


def _archives(distro: Distro, version: Version) -> list[Archive]:
    return [archive for archive in distro.contract.archives if archive.holds(version)]


def _items(value: object) -> list[str]:
    return [item.strip() for text in listed(value) for item in text.split(",")]
