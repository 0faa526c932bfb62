"""Kubeconfigs that came from elsewhere: a Secret of a cluster, the connection info of an agent."""

from __future__ import annotations

import json
import logging

from remuda.agent import connection
from remuda.agent.config import ConfigError
from remuda.kube import kubeconfig
from remuda.kube.kubeconfig import KubeconfigError
from tests.fuzz.source import Source

_NAMES = (
    *("clusters", "contexts", "users", "current-context", "name", "cluster", "context", "user", "server", "token", "x"),
    *(
        "https://a:6443",
        "http://[::1",
        "certificate-authority-data",
        "client-certificate-data",
        "client-key-data",
        "YQ==",
    ),
    *(
        "insecure-skip-tls-verify",
        "proxy-url",
        "exec",
        "command",
        "tokenFile",
        "as",
        "as-groups",
        "namespace",
        "apiVersion",
    ),
)


def check(data: bytes) -> None:
    """Raise if a kubeconfig is neither read nor refused, or has the reader use files or programs."""
    source = Source(data)
    form = source.byte() % 3
    text = source.rest() if form == 0 else json.dumps(_config(source) if form == 1 else source.json(_NAMES)).encode()
    try:
        logging.disable()
        access = kubeconfig.parse(text, environ={})
        assert access.exec is None
        assert access.token_file is None
        assert all(isinstance(pem, bytes) for pem in (access.ca, access.client_certificate, access.client_key))
    except KubeconfigError as error:
        assert len(str(error)) <= 10 * len(text) + 1000
    finally:
        logging.disable(logging.NOTSET)
    info = {"kubeConfig": text.decode("utf-8", "replace"), "namespace": "a", "secretName": "b"}
    try:
        identity = connection.parse(json.dumps(info).encode())
        assert all(server.startswith("https://") for server in identity.servers)
    except ConfigError:
        pass


def _config(source: Source) -> dict[str, object]:
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", **source.object(_NAMES)}}],
        "clusters": [{"name": "x", "cluster": {"server": "https://a:6443", **source.object(_NAMES)}}],
        "users": [{"name": "x", "user": {"token": "t", **source.object(_NAMES)}}],
        **source.object(_NAMES),
    }
