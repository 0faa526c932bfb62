"""Reader of registries.yaml: endpoints, credentials and trusted CAs of registries.

`mirrors` lists the endpoints to try before the registry itself; of the possible names of a registry, the first with an
entry counts, and `*` is the last. A mirror's `rewrite` changes the repository. The keys of `configs` are the hosts that
are actually contacted.
"""

from __future__ import annotations

import os
import re
import ssl
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from remuda.agent.images import ImageError
from remuda.agent.images.credentials import RegistryCredentials, from_auth
from remuda.agent.images.references import DOCKER_HUB, ImageReference, is_repository, shown
from remuda.agent.yaml_subset import YamlError, load

_HUB_HOST = "registry-1.docker.io"
_OTHERS = ("/etc/rancher/rke2/registries.yaml", "/etc/rancher/k3s/registries.yaml")


class Endpoint(NamedTuple):
    """Endpoint to try: `base` ends with the API's /v2. `namespace` tells a mirror of several registries which one is
    meant.
    """

    base: str
    host: str
    repository: str
    namespace: str


class Registries:
    def __init__(self, document: Any = None, path: str = "registries.yaml", root: str = "") -> None:
        self.path = path
        self._root = root
        whole = _mapping(document, f"{path}")
        self._mirrors = _mapping(whole.get("mirrors"), f"{path}: mirrors")
        self._configs = _mapping(whole.get("configs"), f"{path}: configs")

    def endpoints(self, reference: ImageReference) -> list[Endpoint]:
        """Return the endpoints in order: the mirrors, then the registry itself."""
        found: list[Endpoint] = []
        for key in _keys(reference.registry):
            if key in self._mirrors:
                where = f"{self.path}: mirrors[{key}]"
                mirror = _mapping(self._mirrors[key], where)
                repository = _rewritten(
                    reference.repository, _mapping(mirror.get("rewrite"), f"{where}.rewrite"), where
                )
                for address in _list(mirror.get("endpoint"), f"{where}.endpoint"):
                    found.append(_endpoint(str(address), repository, reference, where))
                break
        itself = _HUB_HOST if reference.registry == DOCKER_HUB else reference.registry
        found.append(Endpoint(f"https://{itself}/v2", itself, reference.repository, ""))
        return list(dict.fromkeys(found))

    def credentials(self, host: str) -> RegistryCredentials | None:
        return from_auth(self._config(host).get("auth"))

    def context(self, host: str, beside: str = "") -> ssl.SSLContext:
        """Return the TLS context for this host. It trusts the system's CAs, those configured for the host, and those of
        the registry `beside` it: the same CA often certifies a registry's token server or storage."""
        where = f"{self.path}: configs[{host}].tls"
        tls = _mapping(self._config(host).get("tls"), where)
        context = ssl.create_default_context()
        others = _mapping(self._config(beside).get("tls"), where) if beside else {}
        certificate, key = tls.get("cert_file"), tls.get("key_file")
        try:
            for authorities in (tls.get("ca_file"), others.get("ca_file")):
                if authorities:
                    context.load_verify_locations(cafile=below(str(authorities), self._root))
            if bool(certificate) != bool(key):
                raise ImageError(f"{where} has only one of cert_file and key_file")
            if certificate:
                context.load_cert_chain(below(str(certificate), self._root), below(str(key), self._root))
        except (OSError, ssl.SSLError) as error:
            raise ImageError(f"a file of {where} could not be used: {error}") from None
        if tls.get("insecure_skip_verify") is True:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _config(self, host: str) -> dict[str, Any]:
        keys = [host, DOCKER_HUB, "index.docker.io", "*"] if host == _HUB_HOST else [host, "*"]
        for key in keys:
            if key in self._configs:
                return _mapping(self._configs[key], f"{self.path}: configs[{key}]")
        return {}


def below(path: str, root: str) -> str:
    """Return the real path of a path of the host."""
    if not root or path.startswith(root.rstrip("/") + "/"):
        return path
    return os.path.join(root, path.lstrip("/"))


def read(path: str, root: str = "") -> Registries:
    """Read the agent's own file, or else that of the distribution on this host; empty if there is none."""
    for candidate in (path, *_OTHERS):
        try:
            with open(below(candidate, root), encoding="utf-8") as file:
                return Registries(load(file.read()), candidate, root)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError, YamlError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            raise ImageError(f"{candidate} could not be read: {said}") from None
    return Registries(path=path, root=root)


def _keys(registry: str) -> list[str]:
    if registry == DOCKER_HUB:
        return ["docker.io", "index.docker.io", "registry-1.docker.io", "*"]
    return [registry, "*"] if ":" in registry else [registry, f"{registry}:443", f"{registry}:80", "*"]


def _endpoint(address: str, repository: str, reference: ImageReference, where: str) -> Endpoint:
    whole = address if "://" in address else f"https://{address}"
    url = urlsplit(whole)
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query or url.fragment:
        raise ImageError(f"{where}.endpoint has {shown(address)}, which is not a registry address")
    path = os.path.normpath(url.path) if url.path.strip("/") else "/v2"
    is_itself = url.netloc in (reference.registry, _HUB_HOST if reference.registry == DOCKER_HUB else "")
    return Endpoint(
        f"{url.scheme}://{url.netloc}{path}",
        url.netloc,
        reference.repository if is_itself else repository,
        "" if is_itself else reference.registry,
    )


def _rewritten(repository: str, rewrites: dict[str, Any], where: str) -> str:
    """Rewrite the repository by the first matching pattern. `$1` and `${name}` in a replacement refer to groups."""
    for pattern, replacement in rewrites.items():
        try:
            changed = re.sub(pattern, lambda found: _filled(str(replacement), found), repository)  # noqa: B023
        except re.error as error:
            raise ImageError(
                f"{where}.rewrite has {shown(pattern)}, which is not a regular expression: {error}"
            ) from None
        if changed != repository:
            if not is_repository(changed):
                raise ImageError(f"{where}.rewrite makes {shown(changed)} of {repository}, which is not a repository")
            return changed
    return repository


def _filled(replacement: str, found: re.Match[str]) -> str:
    def group(name: re.Match[str]) -> str:
        key = name[1] or name[2]
        if key is None:
            return "$"
        try:
            return found[int(key) if key.isdecimal() else key] or ""
        except IndexError:
            return ""

    return re.sub(r"\$(?:\$|\{(\w+)\}|(\w+))", group, replacement)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ImageError(f"{where} is not a mapping")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ImageError(f"{where} is not a list")
    return value
