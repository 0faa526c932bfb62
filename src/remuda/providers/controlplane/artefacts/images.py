"""Archives of images: which of those that the manager has a configuration needs, and which are missing. Pure.

Where the manager has no archive at all, nodes pull images, and nothing is missing. Where it has some, nodes may have no
registry to pull the others from: what is missing is found before the first plan, not by a node that waits for a Pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remuda.kube.wait import Wait
from remuda.providers.shared.distros import Distro, Version
from remuda.providers.shared.distros.contract import Archive, listed
from remuda.providers.shared.types.configuration import ClusterConfiguration

Files = Mapping[str, str]  # name → sha256

_REGISTRY = "system-default-registry"
_DISABLED = "disable"


def needed(distro: Distro, version: Version, config: ClusterConfiguration) -> set[str]:
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


def chosen(distro: Distro, version: Version, config: ClusterConfiguration, files: Files) -> dict[str, str]:
    """Return the files that nodes get: of several archives as few as hold what is needed."""
    offered = {archive.name: archive for archive in _archives(distro, version) if archive.name in files}
    missing, taken = needed(distro, version, config), set[str]()
    while missing:
        best = max(offered.values(), key=lambda one: (len(missing & set(one.images)), -len(one.images)), default=None)
        if best is None or not missing & set(best.images):
            break
        missing -= set(best.images)
        taken.add(best.name)
    return {name: value for name, value in files.items() if name not in offered or name in taken}


def lacking(
    distro: Distro, version: Version, config: ClusterConfiguration, artefacts: Mapping[str, Files]
) -> Wait | None:
    """Return the wait for archives that nodes would have to pull, where nothing is named to pull them from."""
    if (config.registries is not None and config.registries.mirrors) or config.machine_global_config.get(_REGISTRY):
        return None
    wanted = needed(distro, version, config)
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
        missing=f"the manager has archives of its images, but none with those of {sets}, and no registry is configured",
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
