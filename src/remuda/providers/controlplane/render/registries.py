"""Registry configuration: registries.yaml of the distribution and of the node agent, and the certificates they name."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from remuda.providers.controlplane.planner.observation import Cluster, RegistryAccess
from remuda.providers.controlplane.render import layout
from remuda.providers.controlplane.render.plan import File, indented
from remuda.providers.shared.types.configuration import RegistryConfig


def files(cluster: Cluster) -> list[File]:
    """The distribution's file is there even if it says nothing: what it says is read at a start, never in between."""
    place = layout.of(cluster)
    content, certificates = _content(cluster, place)
    found = [File(path=place.registries, content=indented(content) if content else b"")]
    if content:
        found.insert(0, File(path=layout.AGENT_REGISTRIES, content=indented(content), dynamic=True))
    return [*found[:-1], *certificates, found[-1]]


def _content(cluster: Cluster, place: layout.Layout) -> tuple[dict[str, Any], list[File]]:
    wanted = cluster.spec.registries
    if wanted is None or not (wanted.mirrors or wanted.configs):
        return {}, []
    certificates: list[File] = []
    configs = {}
    for host, config in sorted(wanted.configs.items()):
        access = cluster.registries.get(host, RegistryAccess())
        folder = f"{place.data}/etc/tls/registries/{host.replace('/', '_')}"
        tls = _tls(folder, config, access, certificates)
        configs[host] = {name: part for name, part in (("auth", _auth(access)), ("tls", tls)) if part}
    mirrors = {
        name: {key: value for key, value in (("endpoint", list(m.endpoint)), ("rewrite", dict(m.rewrite))) if value}
        for name, m in wanted.mirrors.items()
    }
    return {name: part for name, part in (("mirrors", mirrors), ("configs", configs)) if part}, certificates


def _auth(access: RegistryAccess) -> dict[str, str]:
    found = {
        "username": access.username,
        "password": access.password,
        "auth": access.auth,
        "identity_token": access.identity_token,
    }
    return {key: value for key, value in found.items() if value}


def _tls(folder: str, config: RegistryConfig, access: RegistryAccess, certificates: list[File]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    parts = (
        ("cert_file", "tls.crt", access.certificate),
        ("key_file", "tls.key", access.key),
        ("ca_file", "ca.crt", access.authority or _bundle(config)),
    )
    for key, name, content in parts:
        if content:
            found[key] = f"{folder}/{name}"
            certificates.append(File(path=found[key], content=content.encode()))
    if config.insecure_skip_verify:
        found["insecure_skip_verify"] = True
    return found


def _bundle(config: RegistryConfig) -> str:
    try:
        return base64.b64decode(config.ca_bundle, validate=True).decode()
    except (binascii.Error, ValueError):
        return ""  # refused at admission
