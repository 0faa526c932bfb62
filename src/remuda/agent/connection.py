"""Connection to the manager: the connection info written at installation, and servers that plans added since.

The kubeconfig in the connection info names one server and one set of authorities. Files `*.json` in the folder
`servers.d` beside it add more, `{"server": "https://…", "certificate-authority-data": "<base64 PEM>"}`: a plan can
bring them before the manager moves or changes its CA. All authorities together are trusted, all servers are tried in
turn, and nothing is ever trusted without them.
"""

from __future__ import annotations

import base64
import os
import ssl
from typing import Any, NamedTuple

from remuda.agent import formats, log, web, yaml_subset
from remuda.agent.config import ConfigError, read_private


class AgentConnection(NamedTuple):
    """Addresses of the server, and the agent's credentials for it."""

    servers: tuple[str, ...]
    ca_pem: str  # empty: the authorities of this system
    token: str
    client_certificate: str  # PEM of certificate and key, for agents without a token
    namespace: str
    secret: str


def load(path: str, servers_directory: str = "") -> AgentConnection:
    return with_more(parse(read_private(path)), servers_directory)


def parse(content: bytes) -> AgentConnection:
    try:
        found = formats.parse_json(content)
    except ValueError:
        raise ConfigError("the connection info is not JSON") from None
    if not isinstance(found, dict):
        raise ConfigError("the connection info is not a JSON object")
    for key in ("kubeConfig", "namespace", "secretName"):
        if not isinstance(found.get(key), str) or not found[key]:
            raise ConfigError(f"the connection info has no {key}")
    return _identity(found["kubeConfig"], found["namespace"], found["secretName"])


def _identity(kubeconfig: str, namespace: str, secret: str) -> AgentConnection:
    try:
        config = yaml_subset.load(kubeconfig)
        chosen = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], chosen["cluster"])["cluster"]
        user = _named(config["users"], chosen["user"])["user"]
        server = cluster["server"].rstrip("/")
        authority = _pem(cluster, "certificate-authority")
        certificate = _pem(user, "client-certificate") + _pem(user, "client-key")
        token = user.get("token") or ""
    except yaml_subset.YamlError as error:
        raise ConfigError(f"the kubeconfig of the connection info: {error}") from None
    except OSError as error:
        raise ConfigError(f"the kubeconfig of the connection info names {error.filename}: {error.strerror}") from None
    except (KeyError, TypeError, AttributeError, ValueError):
        raise ConfigError("the kubeconfig of the connection info lacks a context, a cluster or a user") from None
    if cluster.get("insecure-skip-tls-verify"):
        raise ConfigError(
            "the kubeconfig of the connection info disables TLS verification, which this agent does not allow"
        )
    if not isinstance(token, str) or not (token or certificate):
        raise ConfigError("the kubeconfig of the connection info has neither a token nor a client certificate")
    if not server.startswith("https://"):
        raise ConfigError("the server of the kubeconfig is not https")
    return AgentConnection((server,), authority, token, certificate, namespace, secret)


def _named(items: Any, name: str) -> Any:
    for item in items:
        if item["name"] == name:
            return item
    raise KeyError(name)


def _pem(part: dict[str, Any], key: str) -> str:
    data = part.get(f"{key}-data")
    if data:
        return base64.b64decode(data, validate=True).decode()
    path = part.get(key)
    if not path:
        return ""
    if not isinstance(path, str):  # `open` takes a number for a descriptor of this process
        raise TypeError(f"{key} is not a path")
    with open(path) as file:
        return file.read()


def with_more(identity: AgentConnection, folder: str) -> AgentConnection:
    """Add the servers and authorities that plans have delivered. Unreadable files are logged and ignored."""
    servers, authorities = list(identity.servers), [identity.ca_pem]
    try:
        names = sorted(os.listdir(folder)) if folder else []
    except OSError:
        names = []
    for name in names:
        if not name.endswith(".json") or name.startswith("."):
            continue
        path = os.path.join(folder, name)
        try:
            found = formats.parse_json(read_private(path))
            server, authority = found.get("server") or "", _pem(found, "certificate-authority")
            # All authorities are loaded as one PEM text: a bad one would make the others unusable.
            if authority:
                web.context(authority)
            if server and web.parse(server).scheme != "https":
                raise ValueError("its server is not https")
        except (ConfigError, ValueError, AttributeError, OSError, ssl.SSLError) as error:
            log.warning(f"ignoring {path}: {error}")
            continue
        authorities.append(authority)
        if server and server.rstrip("/") not in servers:
            servers.append(server.rstrip("/"))
    # A kubeconfig without authorities trusts those of the system. Added ones would replace all of them.
    ca_pem = "\n".join(part for part in authorities if part) if identity.ca_pem else ""
    return identity._replace(servers=tuple(servers), ca_pem=ca_pem)
