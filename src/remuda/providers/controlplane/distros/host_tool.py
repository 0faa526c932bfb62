"""What the scripts of plans cannot say in shell: it travels in every plan as a file and runs on the host, with the
standard library of Python 3.9 and nothing else. TLS is always verified.

    fetch URL-PATH SHA256 DESTINATION   from the manager, by the agent's connection info
    latest URL-PATH DESTINATION         the same, of which the manager itself tells the checksum
    join LIST CA FILE INIT JOINED       which server this host joins by: see `join`
    members DATA-DIRECTORY PORT NODE    of etcd, as the member on this host sees them: JSON
    environment PREFIX…                 for a unit: proxies, and what begins so

`REMUDA_HOST_ROOT` and `REMUDA_HOST_ADDRESS` are of hosts that are folders.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import re
import ssl
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

_SECONDS = 10
_STARTING_SECONDS = 15  # less than there is between two looks at the members
_CHUNK = 1 << 20


def main(arguments: list[str]) -> int:
    commands: dict[str, Callable[..., None]] = {
        "fetch": fetch,
        "latest": latest,
        "join": join,
        "members": members,
        "environment": environment,
    }
    if not arguments or arguments[0] not in commands:
        print(f"one of {', '.join(commands)} is wanted", file=sys.stderr)
        return 2
    try:
        commands[arguments[0]](*arguments[1:])
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return 1
    return 0


# ---- from the manager --------------------------------------------------------------------------------------------


def fetch(path: str, checksum: str, destination: str) -> None:
    """Nothing is at the destination unless it is what was asked for, whole."""
    _of_manager(path, lambda url, trust: _download(url, trust, checksum, destination))


def latest(path: str, destination: str) -> None:
    """What the manager serves there now; nothing is written if that is at the destination already."""

    def update(url: str, trust: ssl.SSLContext) -> None:
        with _open(f"{url}.sha256", trust) as response:
            checksum = (response.read(_CHUNK).decode("ascii", "replace").split() or [""])[0]
        if checksum != _checksum(destination):
            _download(url, trust, checksum, destination)

    _of_manager(path, update)


def _of_manager(path: str, get: Callable[[str, ssl.SSLContext], None]) -> None:
    failures = []
    for server, trust in _managers(_agent_directory()):
        url = f"{server}/{path.lstrip('/')}"
        try:
            return get(url, trust)
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{url}: {error}")
    raise OSError("; ".join(failures) or "the agent's connection info names no server")


def _checksum(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except FileNotFoundError:
        return ""


def _download(url: str, trust: ssl.SSLContext, checksum: str, destination: str) -> None:
    os.makedirs(os.path.dirname(destination), exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(destination))
    try:
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb") as file, _open(url, trust, seconds=60) as response:
            for block in iter(lambda: response.read(_CHUNK), b""):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != checksum:
            raise OSError(f"has the checksum {digest.hexdigest()}, and {checksum} is wanted")
        os.replace(temporary, destination)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _agent_directory() -> str:
    return _on_host(os.environ.get("REMUDA_AGENT_DIR") or "/var/lib/rancher/agent")


def _managers(folder: str) -> list[tuple[str, ssl.SSLContext]]:
    """Where the manager is, and whom to trust there: by the connection info, then by what plans have brought."""
    with open(os.path.join(folder, "rancher2_connection_info.json"), encoding="utf-8") as file:
        found = [_cluster(json.load(file)["kubeConfig"])]
    more = os.path.join(folder, "servers.d")
    for name in sorted(os.listdir(more)) if os.path.isdir(more) else []:
        if name.endswith(".json"):
            with open(os.path.join(more, name), encoding="utf-8") as file:
                entry = json.load(file)
            found.append((entry.get("server") or "", entry.get("certificate-authority-data") or ""))
    authorities = "".join(base64.b64decode(authority).decode() + "\n" for _, authority in found if authority)
    trust = ssl.create_default_context(cadata=authorities or None)
    return [(server.rstrip("/"), trust) for server, _ in found if server.startswith("https://")]


def _cluster(kubeconfig: str) -> tuple[str, str]:
    """Server and authority of a kubeconfig with one cluster, in YAML or JSON."""
    server = re.search(r'\bserver"?\s*:\s*["\']?([^\s"\',}]+)', kubeconfig)
    authority = re.search(r'\bcertificate-authority-data"?\s*:\s*["\']?([A-Za-z0-9+/=]+)', kubeconfig)
    if server is None:
        raise ValueError("the agent's connection info names no server")
    return server.group(1), authority.group(1) if authority else ""


# ---- joining -----------------------------------------------------------------------------------------------------


def join(listed: str, authority: str, target: str, init: str, joined: str) -> None:
    """Writes which server this host joins by. The first that answers is taken, so a dead one blocks nobody. One that
    has `joined` (yes or no) keeps its server while that is listed; one that has not keeps it only if it answers. A host
    that begins the cluster gets `init` instead."""
    with open(listed, encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    if lines == ["init"]:
        return _write(target, init)
    try:
        with open(target, encoding="utf-8") as file:
            current = json.load(file).get("server")
    except (OSError, ValueError):
        current = None
    has_joined = joined == "yes"
    if current and has_joined and (current in lines or not lines):
        return None
    trust = ssl.create_default_context(cafile=authority)
    failures = []
    for url in sorted(lines, key=lambda url: url != current):
        try:
            with _open(f"{url}/ping", trust, direct=True) as response:
                response.read(_CHUNK)
            print(f"joining by {url}")
            return _write(target, json.dumps({"server": url}))
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{url}: {error}")
    if current and has_joined:  # the distribution keeps a list of its own
        print(f"no listed server answers, staying with {current}: {'; '.join(failures)}")
        return None
    raise OSError("no server to join by answers: " + ("; ".join(failures) or "none is listed"))


def _write(path: str, content: str) -> None:
    content += "\n"
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == content:
                return
    except OSError:
        pass
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.new"  # not *.yaml: the distribution reads those
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


# ---- etcd --------------------------------------------------------------------------------------------------------


def members(data: str, port: str, node: str) -> None:
    """A server that has just been started is given a moment, so that the first word about it is not that nothing
    answers, or that it does not vote yet: the next one would come much later."""
    until = time.monotonic() + float(os.environ.get("REMUDA_PATIENCE_SECONDS") or _STARTING_SECONDS)
    while True:
        try:
            found = _members(data, port, node)
            if time.monotonic() > until or any(_is_of(node, one) and not one["learner"] for one in found):
                break
        except (OSError, ValueError, http.client.HTTPException):
            if time.monotonic() > until:
                raise
        time.sleep(1)
    print(json.dumps({"members": sorted(found, key=lambda member: (str(member["name"]), str(member["address"])))}))


def _is_of(node: str, member: dict[str, Any]) -> bool:
    """A member is called as its node, with something behind it."""
    return str(member.get("name") or "").rpartition("-")[0] == node


def _members(data: str, port: str, node: str) -> list[dict[str, Any]]:
    tls = os.path.join(_on_host(data), "server", "tls")
    here = os.environ.get("REMUDA_HOST_ADDRESS") or "127.0.0.1"
    trust = ssl.create_default_context(cafile=os.path.join(tls, "server-ca.crt"))
    with _open(f"https://{_bracketed(here)}:{port}/db/info", trust, direct=True) as response:
        listed = json.load(response).get("members") or []
    found = []
    for member in listed:
        peers = member.get("peerURLs") or [""]
        name, address = member.get("name") or "", urllib.parse.urlsplit(peers[0]).hostname or ""
        if _is_of(node, member):
            healthy = _says_it_is_healthy(f"http://{_bracketed(here)}:2381/health", None)
        else:
            healthy = bool(address) and _is_healthy(address, os.path.join(tls, "etcd"))
        learner = bool(member.get("isLearner"))
        found.append({"name": name, "address": address, "learner": learner, "healthy": bool(healthy)})
    return found


def _is_healthy(address: str, tls: str) -> bool:
    """What the member says of itself; where its client port speaks gRPC only, whether its peer port answers."""
    said = _says_it_is_healthy(
        f"https://{_bracketed(address)}:2379/health", lambda: _mutual(tls, "server-ca.crt", "client")
    )
    if said is not None:
        return said
    try:
        trust = _mutual(tls, "peer-ca.crt", "peer-server-client")
        with _open(f"https://{_bracketed(address)}:2380/version", trust, direct=True, seconds=5) as response:
            return "etcdserver" in json.load(response)
    except (OSError, ValueError, http.client.HTTPException):
        return False


def _says_it_is_healthy(url: str, trust: Callable[[], ssl.SSLContext] | None) -> bool | None:
    """None: it says nothing of the kind."""
    try:
        context = trust() if trust is not None else ssl.create_default_context()
        with _open(url, context, direct=True, seconds=5) as response:
            return str(json.load(response).get("health")).lower() == "true"
    except urllib.error.HTTPError as error:
        return False if error.code in (500, 503) else None
    except (OSError, ValueError, AttributeError, http.client.HTTPException):
        return None


def _mutual(tls: str, authority: str, pair: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=os.path.join(tls, authority))
    context.load_cert_chain(os.path.join(tls, f"{pair}.crt"), os.path.join(tls, f"{pair}.key"))
    return context


# ---- units -------------------------------------------------------------------------------------------------------

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def environment(*prefixes: str) -> None:
    """Lines of an EnvironmentFile. What could not be one line is left out."""
    for name, value in sorted(os.environ.items()):
        if (name in _PROXIES or name.startswith(prefixes)) and "\n" not in value:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
            print(f'{name}="{quoted}"')


# ---- shared ------------------------------------------------------------------------------------------------------


def _open(url: str, trust: ssl.SSLContext, *, direct: bool = False, seconds: float = _SECONDS) -> Any:
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=trust)]
    if direct:  # servers of the cluster itself are never behind a proxy
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers).open(url, timeout=seconds)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _on_host(path: str) -> str:
    return (os.environ.get("REMUDA_HOST_ROOT") or "") + path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
