"""What a Job's program is given: its arguments, its environment, and the files of its volumes.

As in a container, with one difference: paths begin below a directory of the Job's own. Only what is listed here is
known; anything else is refused in words, rather than left out silently.
"""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.jobs.types import Container, Env, EnvFrom, Item, Job, KeyRef, Mount, Pod, Volume
from remuda.kube.client import Client, Target
from remuda.kube.core import CONFIG_MAPS, SECRETS
from remuda.kube.errors import StatusError

_NOT_FOUND = 404
_REFERENCE = re.compile(r"\$(\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
_MODE = 0o644


class NotReady(Exception):
    """Something it refers to is missing; may come yet."""


class NotRunnable(Exception):
    """It asks for something that is not supported."""


class File(msgspec.Struct, frozen=True):
    content: bytes
    mode: int


class Materials(msgspec.Struct, frozen=True, kw_only=True):
    arguments: Sequence[str]  # of the program, which is remuda
    environment: Mapping[str, str]
    files: Mapping[str, File]  # by absolute path
    directories: Sequence[str]  # empty ones, by absolute path


async def gather(client: Client, job: Job, pod: Pod) -> Materials:
    """Raises NotReady and NotRunnable."""
    container = job.spec.template.spec.containers[0]
    source = _Source(client, job.metadata.namespace)
    environment = await _environment(source, container, pod)
    files: dict[str, File] = {}
    directories: list[str] = []
    volumes = {volume.name: volume for volume in job.spec.template.spec.volumes}
    for mount in container.volume_mounts:
        volume = volumes[mount.name]
        if volume.empty_dir is not None:
            directories.append(_inside(mount.mount_path))
        else:
            files |= _mounted(mount, await _contents(source, volume))
    arguments = [expand(text, environment) for text in (*container.command[1:], *container.args)]
    return Materials(arguments=arguments, environment=environment, files=files, directories=directories)


class _Source:
    """Secrets and ConfigMaps of one namespace, each read once."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._read: dict[tuple[Target, str], Mapping[str, bytes] | None] = {}

    async def of(self, target: Target, name: str, optional: bool) -> Mapping[str, bytes] | None:
        if (target, name) not in self._read:
            self._read[target, name] = await self._get(target, name)
        found = self._read[target, name]
        if found is None and not optional:
            raise NotReady(f"{target.plural.removesuffix('s')} {name!r} not found")
        return found

    async def _get(self, target: Target, name: str) -> Mapping[str, bytes] | None:
        try:
            obj: dict[str, Any] = msgspec.json.decode(await self._client.get(target, self._namespace, name))
        except StatusError as error:
            if error.code == _NOT_FOUND:
                return None
            raise
        if target == SECRETS:
            return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
        texts = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
        return texts | {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}


async def _environment(source: _Source, container: Container, pod: Pod) -> dict[str, str]:
    environment: dict[str, str] = {}
    for whole in container.env_from:
        environment |= await _all_of(source, whole)
    for one in container.env:
        value = await _value(source, one, pod) if one.value_from else expand(one.value, environment)
        if value is not None:
            environment[one.name] = value
    return environment


async def _all_of(source: _Source, whole: EnvFrom) -> dict[str, str]:
    reference = whole.secret_ref or whole.config_map_ref
    if reference is None:
        return {}
    target = SECRETS if whole.secret_ref else CONFIG_MAPS
    found = await source.of(target, reference.name, reference.optional)
    return {whole.prefix + key: _text(key, value) for key, value in (found or {}).items()}


async def _value(source: _Source, one: Env, pod: Pod) -> str | None:
    origin = one.value_from
    if origin is None or origin.resource_field_ref is not None:
        raise NotRunnable(f"the environment variable {one.name} comes from a source that is not supported")
    if origin.field_ref is not None:
        return _field(one.name, origin.field_ref.field_path, pod)
    if origin.secret_key_ref is not None:
        return await _key(source, SECRETS, origin.secret_key_ref)
    if origin.config_map_key_ref is not None:
        return await _key(source, CONFIG_MAPS, origin.config_map_key_ref)
    raise NotRunnable(f"the environment variable {one.name} comes from a source that is not supported")


async def _key(source: _Source, target: Target, reference: KeyRef) -> str | None:
    found = await source.of(target, reference.name, reference.optional)
    if found is None or (reference.key not in found and reference.optional):
        return None
    if reference.key not in found:
        raise NotReady(f"couldn't find key {reference.key} in {target.plural.removesuffix('s')} {reference.name}")
    return _text(reference.key, found[reference.key])


def _field(variable: str, path: str, pod: Pod) -> str:
    fields = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.serviceAccountName": pod.spec.service_account_name,
    }
    if path not in fields:
        raise NotRunnable(f"the environment variable {variable}: the field {path} is not supported")
    return fields[path]


def _text(key: str, value: bytes) -> str:
    if b"\0" in value:
        raise NotRunnable(f"the value of key {key} cannot be in an environment variable")
    return value.decode("utf-8", "surrogateescape")


async def _contents(source: _Source, volume: Volume) -> dict[str, File]:
    if volume.secret is not None:
        secret = volume.secret
        found = await source.of(SECRETS, secret.secret_name, secret.optional)
        return _items(volume.name, found, secret.items, secret.default_mode, secret.optional)
    if volume.config_map is not None:
        of = volume.config_map
        found = await source.of(CONFIG_MAPS, of.name, of.optional)
        return _items(volume.name, found, of.items, of.default_mode, of.optional)
    raise NotRunnable(
        f"the volume {volume.name} is of a sort that is not supported: a Secret, a ConfigMap or emptyDir is"
    )


def _items(
    volume: str, found: Mapping[str, bytes] | None, items: Sequence[Item], mode: int | None, optional: bool
) -> dict[str, File]:
    """The files of a volume by their paths in it. Nobody but the runner's own user reads them, whatever the mode says
    of others."""
    usual = _MODE if mode is None else mode
    if found is None:
        return {}
    if not items:
        return {key: File(value, usual & 0o700) for key, value in found.items()}
    files = {}
    for item in items:
        if item.key in found:
            path = _inside(f"/{item.path}")[1:]
            files[path] = File(found[item.key], (usual if item.mode is None else item.mode) & 0o700)
        elif not optional:
            raise NotReady(f"the volume {volume} refers to a key that is not there: {item.key}")
    return files


def _mounted(mount: Mount, files: Mapping[str, File]) -> dict[str, File]:
    base = _inside(mount.mount_path)
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


def _inside(path: str) -> str:
    """An absolute path that stays where it says."""
    if not path.startswith("/") or ".." in path.split("/"):
        raise NotRunnable(f"the path {path} is not an absolute one without ..")
    return posixpath.normpath(path)


def expand(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` as Kubernetes has it: `$$` is a dollar, and what is not known stays as it is."""

    def put(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else environment.get(match[2], match[0])

    return _REFERENCE.sub(put, text)
