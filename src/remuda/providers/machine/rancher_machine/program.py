"""Location and download of a driver's program: rancher-machine itself, and its plugins.

A driver is built into rancher-machine (`local://`), or it is a plugin of its own, given by a path or a URL: a program
called `docker-machine-driver-<name>`, plain or in a zip or tar.gz. A download is checked by its sha256 and kept under
it, so that the same is never fetched twice; one that comes unprotected (http://) must have a checksum.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from remuda.providers import ProviderError

BUILT_IN = "local://"
MACHINE = "rancher-machine"
MACHINE_VARIABLE = "REMUDA_RANCHER_MACHINE"  # where it is, when it is not on the PATH
PREFIX = "docker-machine-driver-"

_MOST_BYTES = 512 * 1024 * 1024
_DOWNLOAD_SECONDS = 300.0


class Unobtainable(ProviderError):
    """The program is not available; the message says why and what to do."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A driver that is a program, on this machine."""

    driver: str
    machine: Path  # rancher-machine
    plugin: Path | None = None  # the driver's own program, where it is not built in
    checksum: str = ""  # sha256 of the plugin's download


async def obtain(driver: str, url: str, checksum: str, *, machine: str = "", directory: Path) -> Program:
    """Return the program of a driver. `machine`: path of rancher-machine; by default from the environment, else the
    PATH. Downloads are stored below `directory`. Raise Unobtainable.
    """
    found = find_machine(machine)
    if not url or url == BUILT_IN:
        return Program(driver=driver, machine=found)
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        plugin = Path(parts.path)
        actual = await asyncio.to_thread(_checked_file, plugin, checksum)
        return Program(driver=driver, machine=found, plugin=plugin, checksum=actual)
    if parts.scheme not in ("http", "https"):
        raise Unobtainable(f"cannot load a driver from {url}: use local://, a path, or an http(s) URL")
    if parts.scheme == "http" and not checksum:
        raise Unobtainable(f"{url} is not encrypted: set checksum to the sha256 of the file")
    plugin, actual = await _kept(driver, url, checksum, directory)
    return Program(driver=driver, machine=found, plugin=plugin, checksum=actual)


def find_machine(path: str = "") -> Path:
    """Raises Unobtainable."""
    wanted = path or os.environ.get(MACHINE_VARIABLE, "")
    if wanted:
        if not os.access(wanted, os.X_OK):
            raise Unobtainable(f"{wanted} is not an executable program")
        return Path(wanted)
    found = shutil.which(MACHINE)
    if found is None:
        raise Unobtainable(
            f"this driver needs the program {MACHINE}, which is not on the PATH: install it, or set its path with "
            f"--rancher-machine or ${MACHINE_VARIABLE}"
        )
    return Path(found)


def _checked_file(path: Path, checksum: str) -> str:
    try:
        actual = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise Unobtainable(f"cannot read the driver's program {path}: {error.strerror}") from None
    _check(str(path), checksum, actual)
    if not os.access(path, os.X_OK):
        raise Unobtainable(f"the driver's program {path} is not executable")
    return actual


def _check(origin: str, wanted: str, actual: str) -> None:
    if wanted and wanted.lower() != actual:
        raise Unobtainable(f"{origin} has sha256 {actual}, expected {wanted}")


# ---- downloads ------------------------------------------------------------------------------------------------------


async def _kept(driver: str, url: str, checksum: str, directory: Path) -> tuple[Path, str]:
    name = f"{PREFIX}{driver}"
    # Without a checksum, the file behind the URL may have changed, so it is downloaded again.
    if checksum:
        present = directory / checksum.lower() / name
        if present.exists():
            return present, checksum.lower()
    content = await _download(url)
    actual = hashlib.sha256(content).hexdigest()
    _check(url, checksum, actual)
    return await asyncio.to_thread(_keep, content, url, directory / actual, name), actual


async def _download(url: str) -> bytes:
    import aiohttp

    content = bytearray()
    try:
        async with (
            aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=_DOWNLOAD_SECONDS)) as session,
            session.get(url) as answer,
        ):
            if answer.status != 200:
                raise Unobtainable(f"{url} answers {answer.status} {answer.reason}")
            async for chunk in answer.content.iter_chunked(2**16):
                content += chunk
                if len(content) > _MOST_BYTES:
                    raise Unobtainable(f"{url} is too large for a driver: more than {_MOST_BYTES} bytes")
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Unobtainable(f"cannot download {url}: {error or 'timed out'}") from None
    return bytes(content)


def _keep(content: bytes, url: str, folder: Path, name: str) -> Path:
    """Store a download atomically."""
    program = unpack(content, url)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(program)
        os.fchmod(file.fileno(), 0o755)  # runs as an unprivileged user, if possible
    target = folder / name
    os.replace(file.name, target)
    return target


def unpack(content: bytes, origin: str) -> bytes:
    """The program in a download: the download itself, or the one file in an archive that is called like a driver."""
    if content.startswith(b"PK\x03\x04"):
        found = _from_zip(content)
    elif content.startswith(b"\x1f\x8b"):
        found = _from_tar(content)
    else:
        found = {PREFIX: content}
    if len(found) != 1:
        raise Unobtainable(
            f"{origin} must contain one file named {PREFIX}…, but contains {', '.join(sorted(found)) or 'none'}"
        )
    (program,) = found.values()
    if not program.startswith((b"\x7fELF", b"#!")):
        raise Unobtainable(f"{origin} is not a program for this system")
    return program


def _from_zip(content: bytes) -> Mapping[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [member for member in archive.infolist() if _is_driver(member.filename)]
            # The size of the download is no limit: a small archive can unpack to any size.
            if sum(member.file_size for member in members) > _MOST_BYTES:
                raise Unobtainable("the archive's content is too large for a driver")
            return {member.filename: archive.read(member) for member in members}
    except zipfile.BadZipFile as error:
        raise Unobtainable(f"the archive of the driver is damaged: {error}") from None


def _from_tar(content: bytes) -> Mapping[str, bytes]:
    found, size = {}, 0
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            for member in archive:
                if member.isfile() and _is_driver(member.name):
                    size += member.size
                    if size > _MOST_BYTES:
                        raise Unobtainable("the archive's content is too large for a driver")
                    file = archive.extractfile(member)
                    found[member.name] = file.read() if file is not None else b""
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Unobtainable(f"the archive of the driver is damaged: {error}") from None
    return found


def _is_driver(path: str) -> bool:
    return path.rpartition("/")[2].startswith(PREFIX)
