"""Loading of kubeconfigs into an `ClientConfig`: choice of files, context and proxy, and validation.

A kubeconfig from a Secret is as trustworthy as everyone who may write that Secret. It must not make this process run a
program or send a local file to a server, so `parse` refuses both by default. The proxy is that of the kubeconfig, or
else of HTTPS_PROXY, HTTP_PROXY and NO_PROXY as kubectl reads them.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from remuda.kube.kubeconfig.access import ClientConfig, ExecPlugin, Impersonation, KubeconfigError, Pem
from remuda.kube.kubeconfig.files import Exec, KubeconfigCluster, KubeconfigUser, Merged, merge_files, read_config

log = logging.getLogger(__name__)

ENVIRONMENT = "KUBECONFIG"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_CONFIG = "client.authentication.k8s.io/exec"  # extension of the cluster for the plugin
_VARIABLE = re.compile(r"[^=\0]+")


def load(path: Path | None = None, context: str = "", *, environ: Mapping[str, str] = os.environ) -> ClientConfig:
    """Load the kubeconfig at `path`, or else $KUBECONFIG, ~/.kube/config, or the Pod's service account.

    `context` overrides the current one. Raise KubeconfigError.
    """
    if path is not None:
        if not path.exists():
            raise KubeconfigError(f"the kubeconfig {path} does not exist")
        return _access(merge_files([path]), context, environ)
    named = [Path(part) for part in environ.get(ENVIRONMENT, "").split(os.pathsep) if part]
    home = Path(environ.get("HOME") or Path.home()) / ".kube" / "config"
    merged = merge_files(named or [home])
    if merged.origin:
        return _access(merged, context, environ)
    if not named and not context and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ=environ)
    looked = " and ".join(map(str, named)) if named else f"{home}, because {ENVIRONMENT} is not set"
    raise KubeconfigError(f"no kubeconfig found: looked for {looked}")


def parse(
    text: bytes,
    context: str = "",
    *,
    origin: str = "kubeconfig",
    allow_exec: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> ClientConfig:
    """Parse a kubeconfig that is no local file. Unless `allow_exec`, it may neither run programs nor name files."""
    merged = Merged(origin)
    # A stanza without a folder is untrusted: `_Stanza` refuses its files and its exec plugin.
    merged.add(read_config(text, origin), Path.cwd() if allow_exec else None)
    return _access(merged, context, environ)


def in_cluster(folder: Path = SERVICE_ACCOUNT, *, environ: Mapping[str, str] = os.environ) -> ClientConfig:
    """Return the in-cluster configuration of a Pod.

    Kubernetes gives every Pod an address in the environment, and a token and a CA in files that are renewed.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise KubeconfigError("not inside a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token = folder / "token"
    if not token.exists():
        raise KubeconfigError(f"inside a cluster, but {token} does not exist: the Pod has no service account token")
    ca, namespace = folder / "ca.crt", folder / "namespace"
    return ClientConfig(
        server=f"https://{_bracketed(host)}:{port}",
        origin=str(folder),
        namespace=namespace.read_text().strip() if namespace.exists() else "",
        ca=ca if ca.exists() else b"",
        token_file=token,
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _access(merged: Merged, name: str, environ: Mapping[str, str]) -> ClientConfig:
    name = name or merged.current_context
    if not name:
        raise KubeconfigError(f"{merged.origin} has no current-context; its contexts are: {_listed(merged.contexts)}")
    context = merged.contexts.get(name)
    if context is None:
        raise KubeconfigError(f"{merged.origin} has no context {name!r}; it has: {_listed(merged.contexts)}")
    where = f"{merged.origin} (context {name!r})"
    if context.cluster not in merged.clusters:
        raise KubeconfigError(f"{where} refers to the cluster {context.cluster!r}, which is not defined")
    if context.user and context.user not in merged.users:
        raise KubeconfigError(f"{where} refers to the user {context.user!r}, which is not defined")
    cluster, cluster_folder = merged.clusters[context.cluster]
    user, user_folder = merged.users[context.user] if context.user else (KubeconfigUser(), None)
    of_cluster = _Stanza(f"cluster {context.cluster!r} in {where}", cluster_folder)
    of_user = _Stanza(f"user {context.user!r} in {where}", user_folder)
    certificate, key = of_user.pair(user)
    access = ClientConfig(
        server=_server(cluster, of_cluster),
        origin=where,
        namespace=context.namespace,
        ca=of_cluster.pem("certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data),
        insecure=cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy_url=cluster.proxy_url or proxy_of_environment(cluster.server, environ),
        token=user.token,
        token_file=of_user.file("tokenFile", user.token_file),
        username=user.username,
        password=user.password,
        client_certificate=certificate,
        client_key=key,
        exec=_exec(user.exec, cluster, of_user, of_cluster) if user.exec else None,
        impersonate=_impersonation(user, of_user),
    )
    _check(access, user, of_cluster, of_user)
    return access


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"


class _Stanza:
    """Cluster or user stanza: its name in errors, and the folder that its relative paths start from."""

    def __init__(self, where: str, folder: Path | None) -> None:
        self.where = where
        self._folder = folder

    def refuse(self, why: str) -> KubeconfigError:
        return KubeconfigError(f"{self.where}: {why}")

    @property
    def is_trusted(self) -> bool:
        return self._folder is not None

    def resolved(self, path: str) -> Path:
        if self._folder is None:
            raise self.refuse("an untrusted kubeconfig may not refer to local files; use the …-data fields")
        return self._folder / path

    def file(self, field: str, path: str) -> Path | None:
        if not path:
            return None
        found = self.resolved(path)
        if not found.is_file():
            raise self.refuse(f"{field} refers to {found}, which is not a file")
        return found

    def pem(self, field: str, path: str, data: str) -> Pem:
        """Return the data, which takes precedence, or the file."""
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except (binascii.Error, ValueError):
                raise self.refuse(f"{field}-data is not base64") from None
        return self.file(field, path) or b""

    def pair(self, user: KubeconfigUser) -> tuple[Pem, Pem]:
        certificate = self.pem("client-certificate", user.client_certificate, user.client_certificate_data)
        key = self.pem("client-key", user.client_key, user.client_key_data)
        if bool(certificate) != bool(key):
            missing = "client-key" if certificate else "client-certificate"
            raise self.refuse(f"a client certificate and its key belong together, but {missing} is missing")
        return certificate, key


def _server(cluster: KubeconfigCluster, stanza: _Stanza) -> str:
    if not cluster.server:
        raise stanza.refuse("server is not set")
    try:
        parts = urlsplit(cluster.server)
        usable = parts.scheme in ("https", "http") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable:
        raise stanza.refuse(f"server {cluster.server!r} is not an https:// or http:// URL")
    return cluster.server.rstrip("/")


def _check(access: ClientConfig, user: KubeconfigUser, of_cluster: _Stanza, of_user: _Stanza) -> None:
    if access.insecure:
        if access.ca:
            raise of_cluster.refuse("insecure-skip-tls-verify and a certificate authority cannot both be set")
        log.warning("%s: the server's certificate is not verified (insecure-skip-tls-verify)", of_cluster.where)
    if access.proxy_url and urlsplit(access.proxy_url).scheme not in ("http", "https"):
        raise of_cluster.refuse(
            f"proxies other than http:// and https:// are not supported: {_shown(access.proxy_url)}"
        )
    if (access.token or access.token_file) and (access.username or access.password):
        raise of_user.refuse("token and password are both set; remove one of them")
    if user.auth_provider is not None:
        raise of_user.refuse(
            f"the auth-provider {user.auth_provider.name!r} was removed from Kubernetes in 1.26; use an exec plugin"
        )


def _shown(url: str) -> str:
    """Return a URL without its password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}"


def _exec(plugin: Exec, cluster: KubeconfigCluster, of_user: _Stanza, of_cluster: _Stanza) -> ExecPlugin:
    if not of_user.is_trusted:
        raise of_user.refuse("an untrusted kubeconfig may not run a program (exec)")
    if not plugin.command:
        raise of_user.refuse("the exec plugin has no command")
    if plugin.api_version not in _EXEC_VERSIONS:
        raise of_user.refuse(
            f"exec apiVersion {plugin.api_version!r} is not supported; use {' or '.join(_EXEC_VERSIONS)}"
        )
    if plugin.interactive_mode == "Always":
        raise of_user.refuse(f"the exec plugin {plugin.command!r} requires a terminal (interactiveMode: Always)")
    for variable in plugin.env or ():
        if not _VARIABLE.fullmatch(variable.name):
            raise of_user.refuse(f"{variable.name!r} is not a valid name of an environment variable")
    # A bare name is looked up in PATH; anything with a slash is a file beside the kubeconfig.
    command = str(of_user.resolved(plugin.command)) if "/" in plugin.command else plugin.command
    return ExecPlugin(
        api_version=plugin.api_version,
        command=command,
        args=tuple(plugin.args or ()),
        env={variable.name: variable.value for variable in plugin.env or ()},
        install_hint=plugin.install_hint,
        cluster_info=_cluster_info(cluster, of_cluster) if plugin.provide_cluster_info else None,
    )


def _cluster_info(cluster: KubeconfigCluster, stanza: _Stanza) -> dict[str, Any]:
    ca = stanza.pem("certificate-authority", cluster.certificate_authority, cluster.certificate_authority_data)
    text = ca.read_bytes() if isinstance(ca, Path) else ca
    extensions = {one.name: one.extension for one in cluster.extensions or ()}
    info = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(text).decode(),
        "proxy-url": cluster.proxy_url,
    }
    return {key: value for key, value in info.items() if value} | {"config": extensions.get(_EXEC_CONFIG)}


def _impersonation(user: KubeconfigUser, stanza: _Stanza) -> Impersonation:
    found = Impersonation(
        user=user.impersonate,
        uid=user.impersonate_uid,
        groups=tuple(user.impersonate_groups or ()),
        extra={key: tuple(values) for key, values in (user.impersonate_extra or {}).items()},
    )
    if not found.user and (found.uid or found.groups or found.extra):
        raise stanza.refuse("as-uid, as-groups and as-user-extra need a user to impersonate (as)")
    return found


def proxy_of_environment(server: str, environ: Mapping[str, str]) -> str:
    """Return the proxy; empty for none, and always for this machine itself."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name) or environ.get(name.upper()) or ""
    if not proxy or _is_loopback(host) or _bypasses(host, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bypasses(host: str, listed: str) -> bool:
    for entry in filter(None, (part.strip().lower() for part in listed.split(","))):
        if entry == "*" or host == entry or host.endswith("." + entry.lstrip(".").removeprefix("*.")):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False):
                return True
        except ValueError:
            continue
    return False
