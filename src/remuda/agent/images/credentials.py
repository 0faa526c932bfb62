"""Registry credentials, looked up in this order: `configs` of registries.yaml, the kubelet's credential provider
plugins, Docker's config.json (`auths`; no helper programs). If none match, access is anonymous.

A plugin is a program in the plugins' directory. As with the kubelet, it gets a CredentialProviderRequest on its
standard input and answers with a CredentialProviderResponse. Its output is a secret and is never shown.
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

from remuda.agent import formats
from remuda.agent.images import ImageError
from remuda.agent.yaml_subset import YamlError, load

_PLUGIN_SECONDS = 60
_VERSIONS = ("v1", "v1beta1", "v1alpha1")
_GROUP = "credentialprovider.kubelet.k8s.io"


class RegistryCredentials(NamedTuple):
    username: str
    password: str
    identity_token: str = ""

    # Credentials must not appear in logs or tracebacks.
    def __repr__(self) -> str:
        return "<credentials>"


def from_auth(auth: Any) -> RegistryCredentials | None:
    """Read an `auth` of registries.yaml or of Docker's config.json, which differ in the spelling of one key."""
    if not isinstance(auth, dict):
        return None
    username, password = _text(auth.get("username")), _text(auth.get("password"))
    token = _text(auth.get("identity_token") or auth.get("identitytoken"))
    both = _text(auth.get("auth"))
    if both and not username:
        try:
            username, _, password = base64.b64decode(both, validate=True).decode().rstrip("\0").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise ImageError("an `auth` of a registry is not name:password in base64") from None
    return RegistryCredentials(username, password, token) if username or token else None


def _text(value: Any) -> str:
    return "" if value is None or isinstance(value, (dict, list)) else str(value)


def from_docker(host: str, environment: Mapping[str, str] = os.environ) -> RegistryCredentials | None:
    folder = environment.get("DOCKER_CONFIG") or os.path.join(environment.get("HOME") or "/root", ".docker")
    try:
        with open(os.path.join(folder, "config.json"), "rb") as file:
            document = json.load(file)
    except (OSError, ValueError):
        return None
    auths = document.get("auths") if isinstance(document, dict) else None
    keys = [host, f"https://{host}", f"http://{host}"]
    if host == "registry-1.docker.io":
        keys += ["docker.io", "index.docker.io", "https://index.docker.io/v1/"]
    for key in keys:
        if isinstance(auths, dict) and key in auths:
            return from_auth(auths[key])
    return None


class Plugins:
    """Plugins of a CredentialProviderConfig; none if the file does not exist."""

    def __init__(self, config: str, directory: str) -> None:
        self._directory = directory
        self._providers: list[dict[str, Any]] = []
        try:
            with open(config, encoding="utf-8") as file:
                document = load(file.read())
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError, YamlError) as error:
            raise ImageError(f"the configuration of credential providers {config} could not be read: {error}") from None
        providers = document.get("providers") if isinstance(document, dict) else None
        if not isinstance(providers, list) or not all(isinstance(provider, dict) for provider in providers):
            raise ImageError(f"the configuration of credential providers {config} has no list of providers")
        self._providers = providers

    def credentials(self, image: str) -> RegistryCredentials | None:
        """Return the credentials for `host[:port]/repository` from the first matching plugin that has some."""
        for provider in self._providers:
            patterns = provider.get("matchImages")
            if any(matches(str(pattern), image) for pattern in patterns or ()):
                found = self._ask(provider, image)
                if found is not None:
                    return found
        return None

    def _ask(self, provider: dict[str, Any], image: str) -> RegistryCredentials | None:
        name, version = str(provider.get("name")), str(provider.get("apiVersion"))
        if not name or "/" in name or name in (".", "..", "None"):
            raise ImageError("a credential provider's name is not the name of a program")
        if version not in [f"{_GROUP}/{known}" for known in _VERSIONS]:
            raise ImageError(f"credential provider {name} has an unknown apiVersion")
        answer = _run(
            name, [os.path.join(self._directory, name), *_arguments(provider)], _environment(provider), image, version
        )
        auth = answer.get("auth") or {}
        if answer.get("kind") != "CredentialProviderResponse" or not isinstance(auth, dict):
            raise ImageError(f"credential provider {name} did not answer with a CredentialProviderResponse")
        # Reverse order, as in the kubelet: of two patterns with a common prefix, the longer one comes first.
        for pattern in sorted(auth, reverse=True):
            if matches(pattern, image):
                return from_auth(auth[pattern])
        return None


def _run(name: str, command: list[str], environment: dict[str, str], image: str, version: str) -> dict[str, Any]:
    request = json.dumps({"kind": "CredentialProviderRequest", "apiVersion": version, "image": image})
    try:
        said = subprocess.run(  # noqa: S603 - the programs the host's owner has configured
            command, input=request.encode(), capture_output=True, env=environment, timeout=_PLUGIN_SECONDS, check=False
        )
    except OSError as error:
        raise ImageError(f"credential provider {name} could not be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ImageError(f"credential provider {name} did not answer within {_PLUGIN_SECONDS} s") from None
    if said.returncode != 0:
        raise ImageError(f"credential provider {name} ended with code {said.returncode}")
    try:
        answer = formats.parse_json(said.stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ImageError(f"credential provider {name} did not answer in JSON")
    return answer


def _arguments(provider: dict[str, Any]) -> list[str]:
    arguments = provider.get("args") or []
    return [str(argument) for argument in arguments] if isinstance(arguments, list) else []


def _environment(provider: dict[str, Any]) -> dict[str, str]:
    extra = provider.get("env") or []
    pairs = {str(pair.get("name")): str(pair.get("value")) for pair in extra if isinstance(pair, dict)}
    return {**os.environ, **pairs}


def matches(pattern: str, image: str) -> bool:
    """Match an image as the kubelet does: the same number of host parts, each by its pattern; the same port; a path
    prefix.
    """
    wanted_host, _, wanted_path = pattern.split("://")[-1].partition("/")
    host, _, path = image.partition("/")
    wanted_name, _, wanted_port = wanted_host.partition(":")
    name, _, port = host.partition(":")
    wanted_parts, parts = wanted_name.split("."), name.split(".")
    return (
        wanted_port == port
        and len(wanted_parts) == len(parts)
        and all(fnmatch.fnmatchcase(part, wanted) for part, wanted in zip(parts, wanted_parts))  # noqa: B905 - 3.9
        and path.startswith(wanted_path)
    )
