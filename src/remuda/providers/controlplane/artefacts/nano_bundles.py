"""nano's artefact `nano.tar.gz`, which nobody has to bring: it is made of this installation, when a cluster wants it.

In it is what nano's packages import, found by reading them: the packages themselves, and the distributions those come
from with everything they require. It runs on hosts of the same architecture with the same minor version of Python,
and needs nothing else of them.

    bin/nano                  finds a Python, and starts lib/ with it, shut off from everything else of the host
    bin/nano-*.sh             its scripts, to end it and to take it off
    lib/                      packages
    lib/VERSION               what nodes report

Packing takes seconds of a processor, so a process of its own does it, and no reconcile waits for it
(`installation.Bundles`). The same installation gives the same bytes: replicas that pack for themselves serve the same,
and a checksum stays what it is.
"""

from __future__ import annotations

import asyncio
import gzip
import importlib.metadata
import io
import os
import platform
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from remuda.providers.controlplane.artefacts import Artefact, Artefacts, BadArtefact, file_names

DISTRO = "nano"
VERSION = "v1.36.4+nano1"  # default version
NAME = "nano.tar.gz"

_SECONDS = 120  # for packing

# By name: programs that manage clusters import no part of the engine.
_PACKAGES = ("remuda.kube", "remuda.apiserver", "remuda.lab.nano")
_MAIN = b'import runpy\n\nrunpy.run_module("remuda.lab.nano", run_name="__main__", alter_sys=True)\n'
_LAUNCHER = "nano.sh"
_SCRIPTS = "remuda/lab/nano/scripts/"
_PYTHON = b"@PYTHON@"
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FOR_BUILDING = (".pyx", ".pxd", ".pxi", ".pyi", ".c", ".h", ".hash", ".pyc")
_COMPRESSION = 2  # half the processor time of level 6 for a file that is a tenth larger
_UNUSED = ("__pycache__", "tests", "sqlite_extra_binaries")  # folders
_OF_THE_INSTALLATION = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")  # where and how it was installed


def pack(store: Artefacts, version: str, *, replace: bool = False) -> list[Artefact]:
    """Raises BadArtefact."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / NAME
        build(version, made)
        return store.add(DISTRO, version, architecture(), {NAME: made}, replace=replace)


class Packing(Artefacts):
    """Artefact store that also packs nano on demand."""

    async def pack(self, distro: str, version: str, *, replace: bool = False) -> None:
        """Pack nano. Raise BadArtefact. If the caller stops waiting, packing ends."""
        if distro != DISTRO:
            raise BadArtefact(f"cannot pack {distro}: only {DISTRO} can be packed from this installation")
        try:
            words = (str(self._directory), version, *(["replace"] if replace else []))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", __name__, *words, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise BadArtefact(f"{sys.executable}: {error.strerror}") from None
        try:
            async with asyncio.timeout(_SECONDS):
                _, said = await process.communicate()
        except TimeoutError:
            raise BadArtefact(f"packing took longer than {_SECONDS} seconds") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise BadArtefact(next(reversed(said.decode("utf-8", "replace").split("\n")[:-1]), "it reports no cause"))


def architecture() -> str:
    """Return the architecture of this machine, and so of the bundles built on it."""
    return file_names.architecture(platform.machine())


def build(version: str, target: Path) -> None:
    entries: dict[str, tuple[bytes, bool]] = {}  # content, and whether it is a program
    minor = ".".join(map(str, sys.version_info[:2])).encode()
    launcher = files(__package__).joinpath(_LAUNCHER).read_bytes().replace(_PYTHON, minor)
    entries["bin/nano"] = (launcher, True)
    entries["lib/__main__.py"] = (_MAIN, False)
    for package in ("remuda", "remuda.lab"):
        path = f"lib/{package.replace('.', '/')}/__init__.py"
        entries[path] = (files(package).joinpath("__init__.py").read_bytes(), False)
    ours = dict(_sources())
    for path, content in ours.items():
        entries[f"lib/{path}"] = (content, False)
        if path.startswith(_SCRIPTS):
            entries[f"bin/{path.removeprefix(_SCRIPTS)}"] = (content, True)
    entries["lib/VERSION"] = (f"{version}\n".encode(), False)
    for distribution in _distributions(_imported(content for path, content in ours.items() if path.endswith(".py"))):
        for path, content in _files(distribution):
            entries[f"lib/{path}"] = (content, False)
    with target.open("wb") as file, gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as packed:
        _write(packed, entries)


def _write(packed: gzip.GzipFile, entries: dict[str, tuple[bytes, bool]]) -> None:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(entries):
            content, program = entries[path]
            member = tarfile.TarInfo(path)
            member.size = len(content)
            member.mode = 0o755 if program else 0o644
            archive.addfile(member, io.BytesIO(content))


# -- content ---------------------------------------------------------------------------------------------------------


def _sources() -> Iterator[tuple[str, bytes]]:
    for package in _PACKAGES:
        yield from _below(files(package), package.replace(".", "/"))


def _below(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            if each.name not in _UNUSED:
                yield from _below(each, f"{path}/{each.name}")
        elif not each.name.endswith(_FOR_BUILDING):
            yield f"{path}/{each.name}", each.read_bytes()


def _imported(sources: Iterable[bytes]) -> set[str]:
    """Return the top-level names of imported modules that are neither ours nor Python's own.

    Lines are matched, because parsing all sources takes longer than packing them. A line of a docstring that looks like
    an import adds a name that no distribution has, or at worst a distribution that is not needed.
    """
    found = {name.decode() for source in sources for name in _IMPORT.findall(source)}
    return found - set(sys.stdlib_module_names) - {"remuda"}


def _distributions(modules: set[str]) -> list[importlib.metadata.Distribution]:
    """Return the distributions that contain these modules, and all their requirements. A requirement that only some
    systems have may be missing here."""
    holders = importlib.metadata.packages_distributions()
    wanted = sorted({name for module in modules for name in holders.get(module, ())})
    found: dict[str, importlib.metadata.Distribution] = {}
    while wanted:
        name = wanted.pop()
        key = re.sub("[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            found[key] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        for line in found[key].requires or ():
            requirement, _, marker = line.partition(";")
            match = _REQUIREMENT.match(requirement)
            if match and "extra" not in marker:
                wanted.append(match[0])
    return [found[key] for key in sorted(found)]


def _files(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    if distribution.files is None:
        raise BadArtefact(
            f"cannot list the files of {distribution.name}: install Remuda with pip, as its documentation says"
        )
    for path in distribution.files:
        used = not path.is_absolute() and not {"..", *_UNUSED} & set(path.parts)
        if used and path.name not in _OF_THE_INSTALLATION and not path.name.endswith(_FOR_BUILDING):
            yield path.as_posix(), Path(os.fspath(path.locate())).read_bytes()


if __name__ == "__main__":
    try:
        pack(Artefacts(Path(sys.argv[1])), sys.argv[2], replace="replace" in sys.argv[3:])
    except BadArtefact as error:
        sys.exit(str(error))
