"""Resolved connection to an API server: address and credentials, with every path and every name resolved.

A value that is a `Path` stays a path: such files are replaced while the process runs (the kubelet renews the tokens and
certificates of Pods), so their users read them again when they change.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from remuda.kube import KubeError

Pem = bytes | Path  # the content itself, or the file that contains it


class KubeconfigError(KubeError):
    """Unusable kubeconfig; the text names the file, the context and the error."""


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """Program that prints credentials (`client.authentication.k8s.io`)."""

    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    install_hint: str = ""
    cluster_info: Mapping[str, Any] | None = None  # passed to the program, if the kubeconfig requests it


class Impersonation(msgspec.Struct, frozen=True, kw_only=True):
    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    server: str
    origin: str = "kubeconfig"  # source, for messages
    namespace: str = ""
    ca: Pem = b""  # empty: the CAs that this machine trusts
    insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    token: str = ""
    token_file: Path | None = None
    username: str = ""
    password: str = ""
    client_certificate: Pem = b""
    client_key: Pem = b""
    exec: ExecPlugin | None = None
    impersonate: Impersonation = Impersonation()

    @property
    def method(self) -> Literal["token", "basic", "exec", "certificate", "anonymous"]:
        """Return the authentication method, in order of precedence; a client certificate may be used in addition."""
        if self.token or self.token_file:
            return "token"
        if self.username or self.password:
            return "basic"
        if self.exec:
            return "exec"
        return "certificate" if self.client_certificate else "anonymous"

    def __repr__(self) -> str:
        """Return a text without secrets, for logs."""
        return f"<Access {self.server} by {self.method} from {self.origin}>"

    __str__ = __repr__
