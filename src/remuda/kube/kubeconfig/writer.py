"""Writer of kubeconfigs with one cluster, one user and one context.

`build` is pure; `write` puts the file in place atomically and readable by its owner only, since it holds a key or a
token. JSON is valid YAML and every client reads it, but people open this file, so it is written as YAML.
"""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path
from typing import Any

import yaml


def build(
    server: str,
    *,
    ca_pem: bytes = b"",
    client_certificate_pem: bytes = b"",
    client_key_pem: bytes = b"",
    token: str = "",
    name: str = "remuda",
    user: str = "admin",
    namespace: str = "",
) -> dict[str, Any]:
    """Return a kubeconfig with a client certificate and key, or a token; without either, it is anonymous."""
    cluster: dict[str, Any] = {"server": server}
    if ca_pem:
        cluster["certificate-authority-data"] = _base64(ca_pem)
    credentials: dict[str, Any] = {}
    if client_certificate_pem:
        credentials["client-certificate-data"] = _base64(client_certificate_pem)
        credentials["client-key-data"] = _base64(client_key_pem)
    if token:
        credentials["token"] = token
    context = {"cluster": name, "user": user}
    if namespace:
        context["namespace"] = namespace
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def write(path: Path, config: dict[str, Any]) -> None:
    """Write the file atomically. It is created with mode 0600 (mkstemp's), so the key is never readable by others."""
    text = yaml.safe_dump(config, sort_keys=False)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
