"""Kubeconfig files on disk, and their merge as kubectl does it: the first file that sets a name wins.

Every stanza remembers the file it came from: its relative paths start from that file's folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from remuda.kube import untrusted_yaml
from remuda.kube.kubeconfig.access import KubeconfigError

_MOST_ALIASES = 64  # the conversion below visits an aliased value at each use


class _Kebab(msgspec.Struct, kw_only=True, rename="kebab"):
    """Base of stanzas: most keys are kebab-case; others are named explicitly."""


class NamedExtension(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    extension: Any = None


class KubeconfigCluster(_Kebab):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: list[NamedExtension] | None = None


class EnvironmentVariable(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str = ""


class Exec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    command: str = ""
    args: list[str] | None = None
    env: list[EnvironmentVariable] | None = None
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""


class KubeconfigUser(_Kebab):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] | None = msgspec.field(default=None, name="as-groups")
    impersonate_extra: dict[str, list[str]] | None = msgspec.field(default=None, name="as-user-extra")
    username: str = ""
    password: str = ""
    auth_provider: AuthProvider | None = None
    exec: Exec | None = None


class KubeconfigContext(_Kebab):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(_Kebab):
    name: str = ""
    cluster: KubeconfigCluster | None = None


class _NamedUser(_Kebab):
    name: str = ""
    user: KubeconfigUser | None = None


class _NamedContext(_Kebab):
    name: str = ""
    context: KubeconfigContext | None = None


class Config(_Kebab):
    current_context: str | None = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class Merged:
    """Merged content of several kubeconfig files.

    Each stanza is stored with the folder that its relative paths start from; None for a kubeconfig that is not a file.
    """

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.current_context = ""
        self.clusters: dict[str, tuple[KubeconfigCluster, Path | None]] = {}
        self.users: dict[str, tuple[KubeconfigUser, Path | None]] = {}
        self.contexts: dict[str, KubeconfigContext] = {}

    def add(self, config: Config, folder: Path | None) -> None:
        self.current_context = self.current_context or config.current_context or ""
        for cluster in config.clusters or ():
            self.clusters.setdefault(cluster.name, (cluster.cluster or KubeconfigCluster(), folder))
        for user in config.users or ():
            self.users.setdefault(user.name, (user.user or KubeconfigUser(), folder))
        for context in config.contexts or ():
            self.contexts.setdefault(context.name, context.context or KubeconfigContext())


def read_config(text: bytes, origin: str) -> Config:
    """Parse a kubeconfig from an untrusted source, with bounded work and without crashing. Raises KubeconfigError."""
    try:
        found = untrusted_yaml.load(text, most_aliases=_MOST_ALIASES)
    except untrusted_yaml.TooComplex as error:
        raise KubeconfigError(f"{origin} is not a valid kubeconfig: {error}") from None
    except yaml.YAMLError as error:
        # Without the text around it, which may be a key.
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where is not None else ""
        raise KubeconfigError(f"{origin} is not valid YAML{line}") from None
    try:
        return msgspec.convert(found if found is not None else {}, Config)
    except msgspec.ValidationError as error:
        raise KubeconfigError(f"{origin} is not a valid kubeconfig: {error}") from None


def merge_files(paths: Iterable[Path]) -> Merged:
    """Merge the files that exist; there may be none. Raise KubeconfigError."""
    found = list(dict.fromkeys(path for path in paths if path.exists()))
    merged = Merged(", ".join(map(str, found)))
    for path in found:
        try:
            text = path.read_bytes()
        except OSError as error:
            raise KubeconfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from None
        merged.add(read_config(text, str(path)), path.parent.absolute())
    return merged
