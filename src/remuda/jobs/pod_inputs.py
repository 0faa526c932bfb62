"""Read the files that a Job's volumes provide. The runner itself sets the arguments and the environment.

Files have the same paths as in a container, but below a directory of the Job. A Job that needs anything else is refused
with a message that names it. The contents of each Secret and ConfigMap are read once and compared with the digest in
the Job's mark; exactly these bytes are written.
"""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.jobs import JobRunnerError
from remuda.jobs.marks import Mark, digest, input_name
from remuda.jobs.types import Item, Job, Mount, Volume
from remuda.kube.client import Client, Target
from remuda.kube.core import CONFIG_MAPS, SECRETS
from remuda.kube.errors import NotFound

_MODE = 0o644


class NotReady(JobRunnerError):
    """An object that the Job refers to does not exist yet."""


class NotRunnable(JobRunnerError):
    """The Job asks for something that is not supported, or the manager did not make it."""


class PodFile(msgspec.Struct, frozen=True):
    content: bytes
    mode: int


class PodInputs(msgspec.Struct, frozen=True, kw_only=True):
    files: Mapping[str, PodFile]  # by absolute path
    directories: Sequence[str]  # empty ones, by absolute path


async def gather(client: Client, job: Job, mark: Mark) -> PodInputs:
    """Read all inputs of a Job. Raise NotReady and NotRunnable."""
    container = job.spec.template.spec.containers[0]
    source = _Source(client, job.metadata.namespace, mark)
    files: dict[str, PodFile] = {}
    directories: list[str] = []
    volumes = {volume.name: volume for volume in job.spec.template.spec.volumes}
    for mount in container.volume_mounts:
        volume = volumes[mount.name]
        if volume.empty_dir is not None:
            directories.append(inside(mount.mount_path))
        else:
            files |= _mounted(mount, await _contents(source, volume))
    return PodInputs(files=files, directories=directories)


class _Source:
    """Secrets and ConfigMaps of one namespace, each read once and compared with its content when the manager created
    the Job.
    """

    def __init__(self, client: Client, namespace: str, mark: Mark) -> None:
        self._client = client
        self._namespace = namespace
        self._mark = mark
        self._read: dict[tuple[Target, str], Mapping[str, bytes] | None] = {}

    async def of(self, target: Target, name: str, optional: bool) -> Mapping[str, bytes] | None:
        if (target, name) not in self._read:
            self._read[target, name] = await self._get(target, name)
        found = self._read[target, name]
        if found is None and not optional:
            raise NotReady(f"{target.plural.removesuffix('s')} {name!r} not found")
        # An optional object that was absent when the manager signed the Job must still be absent: a user may
        # have created it since.
        signed = self._mark.inputs.get(input_name(target.plural, name), "")
        if signed != ("" if found is None else digest(found)):
            raise NotRunnable(
                f"{target.plural.removesuffix('s')} {name!r} has changed since the manager made this Job: "
                "the Job is not run"
            )
        return found

    async def _get(self, target: Target, name: str) -> Mapping[str, bytes] | None:
        try:
            obj: dict[str, Any] = msgspec.json.decode(await self._client.get(target, self._namespace, name))
        except NotFound:
            return None
        if target == SECRETS:
            return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
        texts = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
        return texts | {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}


async def _contents(source: _Source, volume: Volume) -> dict[str, PodFile]:
    if volume.secret is not None:
        secret = volume.secret
        found = await source.of(SECRETS, secret.secret_name, secret.optional)
        return _items(volume.name, found, secret.items, secret.default_mode, secret.optional)
    if volume.config_map is not None:
        of = volume.config_map
        found = await source.of(CONFIG_MAPS, of.name, of.optional)
        return _items(volume.name, found, of.items, of.default_mode, of.optional)
    raise NotRunnable(f"the type of volume {volume.name} is not supported: use a Secret, a ConfigMap or an emptyDir")


def _items(
    volume: str, found: Mapping[str, bytes] | None, items: Sequence[Item], mode: int | None, optional: bool
) -> dict[str, PodFile]:
    """Return the files of a volume by their relative paths. Only the runner's own user can read them, whatever the mode
    says of others.
    """
    usual = _MODE if mode is None else mode
    if found is None:
        return {}
    if not items:
        return {key: PodFile(value, usual & 0o700) for key, value in found.items()}
    files = {}
    for item in items:
        if item.key in found:
            path = inside(f"/{item.path}")[1:]
            files[path] = PodFile(found[item.key], (usual if item.mode is None else item.mode) & 0o700)
        elif not optional:
            raise NotReady(f"volume {volume} references non-existent key: {item.key}")
    return files


def _mounted(mount: Mount, files: Mapping[str, PodFile]) -> dict[str, PodFile]:
    base = inside(mount.mount_path)
    if not mount.sub_path:
        return {posixpath.join(base, path): file for path, file in files.items()}
    below = mount.sub_path.strip("/")
    if below in files:
        return {base: files[below]}
    return {
        posixpath.join(base, path[len(below) + 1 :]): file
        for path, file in files.items()
        if path.startswith(f"{below}/")
    }


def inside(path: str) -> str:
    """Return the normalised path. Raises NotRunnable unless it is absolute and without `..`."""
    if not path.startswith("/") or ".." in path.split("/"):
        raise NotRunnable(f"the path {path} must be absolute and must not contain '..'")
    return posixpath.normpath(path)
