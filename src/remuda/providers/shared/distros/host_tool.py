"""What the scripts of plans cannot say in shell: it travels in every plan as a file and runs on the host, with the
standard library of Python 3.9 and nothing else. TLS is always verified.

    fetch URL-PATH SHA256 DESTINATION   from the manager, by the agent's connection info
    latest URL-PATH DESTINATION         the same, of which the manager itself tells the checksum
    join LIST CA FILE INIT JOINED       which server this host joins by: see `join`
    members DATA-DIRECTORY PORT NODE    of etcd, as the member on this host sees them: JSON
    status UNIT CONFIG-DIRECTORY        what keeps a unit from running: JSON; nothing while it is active
    environment PREFIX…                 for a unit: proxies, and what begins so
    authorities STAGED DATA-DIRECTORY   moves the cluster's authorities to where the distribution reads them

`REMUDA_HOST_ROOT` and `REMUDA_HOST_ADDRESS` are of hosts that are folders.

Hosts run it every few seconds, so each command loads what it needs: HTTP and TLS take three times as long to load as
everything else, and patterns are compiled when they are used first.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator
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
        "status": status,
        "environment": environment,
        "authorities": authorities,
    }
    if not arguments or arguments[0] not in commands:
        print(f"one of {', '.join(commands)} is wanted", file=sys.stderr)
        return 2
    try:
        commands[arguments[0]](*arguments[1:])
    except (OSError, ValueError) as error:
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
        text = _get(f"{url}.sha256", trust)
        checksum = (text.decode("ascii", "replace").split() or [""])[0]
        if checksum != _checksum(destination):
            _download(url, trust, checksum, destination)

    _of_manager(path, update)


def _of_manager(path: str, get: Callable[[str, ssl.SSLContext], None]) -> None:
    failures = []
    for server, trust in _managers(_agent_directory()):
        url = f"{server}/{path.lstrip('/')}"
        try:
            return get(url, trust)
        except OSError as error:
            failures.append(f"{url}: {error}")
    raise OSError("; ".join(failures) or "the agent's connection info names no server")


def _checksum(path: str) -> str:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except FileNotFoundError:
        return ""


def _download(url: str, trust: ssl.SSLContext, checksum: str, destination: str) -> None:
    import hashlib
    import tempfile

    os.makedirs(os.path.dirname(destination), exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(destination))
    try:
        digest = hashlib.sha256()
        with os.fdopen(handle, "wb") as file:
            for block in _blocks(url, trust, seconds=60):
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
    import base64
    import ssl

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
    import ssl

    trust = ssl.create_default_context(cafile=authority)
    failures = []
    for url in sorted(lines, key=lambda url: url != current):
        try:
            _get(f"{url}/ping", trust, direct=True)
            print(f"joining by {url}")
            return _write(target, json.dumps({"server": url}))
        except OSError as error:
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


# ---- authorities -------------------------------------------------------------------------------------------------


def authorities(staged: str, data: str) -> None:
    """Move staged files into the data directory, where they are missing or have another content.

    A file with the same content stays untouched: RKE2 gives some of them to user etcd, and etcd does not start again
    when it cannot read them. A file that is replaced keeps its owner and mode. Agents cannot do this by themselves:
    they reset the owner and the mode of every file of a plan.
    """
    for folder, _, names in os.walk(staged):
        for name in names:
            source = os.path.join(folder, name)
            target = os.path.join(data, os.path.relpath(source, staged))
            if _content(source) != _content(target):
                _replace(target, _content(source) or b"")
            os.unlink(source)


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _replace(path: str, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.new"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        if os.path.exists(path):
            before = os.stat(path)
            if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            os.fchmod(file.fileno(), before.st_mode & 0o7777)
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
        except (OSError, ValueError):
            if time.monotonic() > until:
                raise
        time.sleep(1)
    print(json.dumps({"members": sorted(found, key=lambda member: (str(member["name"]), str(member["address"])))}))


def _is_of(node: str, member: dict[str, Any]) -> bool:
    """A member is called as its node, with something behind it."""
    return str(member.get("name") or "").rpartition("-")[0] == node


def _members(data: str, port: str, node: str) -> list[dict[str, Any]]:
    import ssl
    import urllib.parse

    tls = os.path.join(_on_host(data), "server", "tls")
    here = os.environ.get("REMUDA_HOST_ADDRESS") or "127.0.0.1"
    trust = ssl.create_default_context(cafile=os.path.join(tls, "server-ca.crt"))
    listed = json.loads(_get(f"https://{_bracketed(here)}:{port}/db/info", trust, direct=True)).get("members") or []
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
        found = json.loads(_get(f"https://{_bracketed(address)}:2380/version", trust, direct=True, seconds=5))
        return "etcdserver" in found
    except (OSError, ValueError):
        return False


def _says_it_is_healthy(url: str, trust: Callable[[], ssl.SSLContext] | None) -> bool | None:
    """None: it says nothing of the kind."""
    try:
        found = json.loads(_get(url, trust() if trust is not None else None, direct=True, seconds=5))
        return str(found.get("health")).lower() == "true"
    except OSError as error:
        return False if getattr(error, "code", None) in (500, 503) else None
    except (ValueError, AttributeError):
        return None


def _mutual(tls: str, authority: str, pair: str) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(cafile=os.path.join(tls, authority))
    context.load_cert_chain(os.path.join(tls, f"{pair}.crt"), os.path.join(tls, f"{pair}.key"))
    return context


# ---- the unit ----------------------------------------------------------------------------------------------------

_PROPERTIES = ("LoadState", "ActiveState", "NRestarts", "Result", "MainPID", "InvocationID")
_SETTLING_SECONDS = 5  # what a start that goes well may take before it is reported
_YOUNG_SECONDS = 30  # a program that was restarted and is younger than this may be about to end again
_TAIL_LINES, _TAIL_BYTES = 200, 64 << 10
_FATAL_LINES, _ERROR_LINES = 50, 20  # how far back an error is looked for: an older one is not why it does not run now
_MOST_LINE, _MOST_ERROR = 4096, 300

_FATAL = r'level"?[=:]"?(?:fatal|panic)\b|^F\d{4} \d\d:|^panic: |^fatal error: |\bCRITICAL\b'
_ERROR = (
    r'level"?[=:]"?error\b|^E\d{4} \d\d:|\bERROR\b|\b[Ee]rror: |'
    r"^[\w.-]+ (?:server|agent): |^[\w.]*(?:Error|Exception)\b"
)
_NOISE = r"\s|modprobe: |\+ |goroutine \d|$"
_FIELD = r'\b(?:msg|error)=("(?:[^"\\]|\\.)*"|\S+)'
_ESCAPE = r"\x1b\[[0-9;]*[A-Za-z]"
_PREFIX = r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [\w./-]+:\d+\] "
_TIME = (
    r"\[?\b\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?(?: m=[+-][\d.]+)?\]?:?\s*"
)


def status(unit: str, config: str) -> None:
    """Print nothing while the unit is active, else its state and the last error that its program logged, as JSON.

    The text has neither times nor secrets: it is written where users of the cluster read it, whenever it changes.
    """
    until = time.monotonic() + float(os.environ.get("REMUDA_PATIENCE_SECONDS") or _SETTLING_SECONDS)
    found = _properties(unit)
    while found["ActiveState"] == "activating" and not _has_ended(found) and time.monotonic() < until:
        time.sleep(0.5)
        found = _properties(unit)
    state, ended = found["ActiveState"], _has_ended(found)
    if found["LoadState"] != "loaded":
        return  # the installation has not come that far, and says so itself
    if state in ("active", "reloading"):
        # Between two ends a unit that does not wait for its program to be ready is active for a moment.
        if not int(found["NRestarts"] or 0) or _age(found["MainPID"]) > _YOUNG_SECONDS:
            return
        state = "activating"
    error = _last_error(_logged(unit, "" if ended else found["InvocationID"]), ended)
    if ended and not error:
        error = _last_error(_journal(f"--unit={unit}.service"), False) or found["Result"]
    print(
        json.dumps(
            {"unit": unit, "state": state, "error": _public(": ".join(filter(None, (error, *_advice()))), config)}
        )
    )


def _advice() -> list[str]:
    """Return the lines in which the installation says what this host lacks."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "advice")
    return (_content(path) or b"").decode("utf-8", "replace").splitlines()


def _properties(unit: str) -> dict[str, str]:
    command = ["systemctl", "show", "--property=" + ",".join(_PROPERTIES), f"{unit}.service"]
    lines = _output(command).decode("utf-8", "replace").splitlines()
    return {**dict.fromkeys(_PROPERTIES, ""), **dict(line.split("=", 1) for line in lines if "=" in line)}


def _has_ended(found: dict[str, str]) -> bool:
    """Return whether the program has ended by itself since the unit was started."""
    return bool(int(found["NRestarts"] or 0)) or found["Result"] not in ("", "success")


def _age(pid: str) -> float:
    """Seconds since the process began; none, when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            began = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        with open("/proc/uptime", encoding="ascii") as file:
            return float(file.read().split()[0]) - began
    except (OSError, ValueError, IndexError):
        return 0.0


def _logged(unit: str, invocation: str) -> list[str]:
    """The last lines that the program has logged; with `invocation`, those of this start alone."""
    if not os.environ.get("REMUDA_HOST_ROOT"):
        return _journal(
            f"_SYSTEMD_UNIT={unit}.service", *([f"_SYSTEMD_INVOCATION_ID={invocation}"] if invocation else [])
        )
    if invocation or not unit:
        return []
    try:
        with open(_on_host(f"/var/log/{unit}.log"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").split("\n")[-_TAIL_LINES:]
    except OSError:
        return []


def _journal(*matches: str) -> list[str]:
    if os.environ.get("REMUDA_HOST_ROOT"):
        return []  # that of the machine it stands on
    command = ["journalctl", "--quiet", "--no-pager", "--output=cat", f"--lines={_TAIL_LINES}", *matches]
    try:
        found = _output(command)
    except OSError:
        return []
    return found[-_TAIL_BYTES:].decode("utf-8", "replace").split("\n")


def _output(command: list[str]) -> bytes:
    """Run a program, and return what it prints. Raises OSError."""
    import subprocess

    try:
        done = subprocess.run(  # noqa: S603
            command, stdout=subprocess.PIPE, timeout=_SECONDS, check=False
        )
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from None
    return done.stdout


def _last_error(lines: list[str], ended: bool) -> str:
    """The last line of the worst kind; of a program that has ended without any, its last line."""
    plain = [line for line in (re.sub(_ESCAPE, "", line) for line in lines) if not re.match(_NOISE, line)]
    bare = [re.sub(_TIME, "", line, count=1) if re.match(_TIME, line) else line for line in plain]
    for kind, most in ((_FATAL, _FATAL_LINES), (_ERROR, _ERROR_LINES)):
        for line in reversed(bare[-most:]):
            if re.search(kind, line):
                return _message(line)
    return _message(bare[-1]) if ended and bare else ""


def _message(line: str) -> str:
    """Return the message of a log line, without time, level and source."""
    if line.startswith("{"):  # etcd within K3s
        try:
            found = json.loads(line)
            return ": ".join(_unquoted(str(found[key])) for key in ("msg", "error") if found.get(key))
        except (ValueError, AttributeError):
            return line
    if "level=" in line and (fields := re.findall(_FIELD, line)):
        return ": ".join(_unquoted(field) for field in fields)
    return re.sub(_PREFIX, "", line, count=1)


def _unquoted(field: str) -> str:
    """Lines of one message are sorted: RKE2 lists what is wrong with a host in an order that changes."""
    if field.startswith('"'):
        try:
            field = json.loads(field)
        except ValueError:
            field = field[1:-1]
    return ", ".join(sorted(line.strip() for line in field.splitlines() if line.strip()))


# ---- secrets of its log

_HIDDEN = "***"
_SENSITIVE = (
    r"[\w.-]{0,40}(?:pass(?:word|wd|phrase)?|secret|token|credential|api-?key|access-?key|private-?key|authorization)"
    r"[\w.-]{0,40}"
)
_SHAPES = (
    r"-----BEGIN.*",
    r"\bK10[0-9a-f]{16,}(?:::?[^\s\"']*)?",
    r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*",
    r"(?i)(?<=bearer )[^\s\"']{5,}|(?<=basic )[A-Za-z0-9+/=]{8,}",
    r"(?<=://)[^/\s@\"']+(?=@)",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\$[0-9a-z]{1,2}\$[^\s\"']{8,}",
)
_ASSIGNED = rf"(?i)({_SENSITIVE}[\"']?\s*=\s*[\"']?)[^\s\"',;&]+"
_TOLD = rf"(?i)({_SENSITIVE}[\"']?:\s*[\"']?)[^\s\"',;&]+(?=[\"',;}}\]]|\s*$)"
_OPTION = rf"(?i)(--{_SENSITIVE} )[^\s-]\S*"
_HIDDEN_KEYS = r"token|secret|pass|key|^auth$|datastore-endpoint"


def _public(text: str, config: str) -> str:
    """The text as one short line without control characters, times and secrets."""
    for secret in sorted(_configured_secrets(config), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    text = text[:_MOST_LINE]
    for shape in _SHAPES:
        text = re.sub(shape, _HIDDEN, text)
    for named in (_OPTION, _ASSIGNED, _TOLD):
        text = re.sub(named, rf"\1{_HIDDEN}", text)
    text = re.sub(_TIME, "", text)
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return text if len(text) <= _MOST_ERROR else text[: _MOST_ERROR - 1] + "…"


def _configured_secrets(config: str) -> set[str]:
    """Values of the files that plans bring, by their keys."""
    found: set[str] = set()
    for name in ("config.yaml.d/50-rancher.yaml", "registries.yaml"):
        try:
            with open(os.path.join(_on_host(config), name), encoding="utf-8") as file:
                _collect(json.load(file), False, found)
        except (OSError, ValueError):
            continue
    return found


def _collect(value: Any, secret: bool, found: set[str]) -> None:
    if isinstance(value, dict):
        for key, one in value.items():
            _collect(one, secret or bool(re.search(_HIDDEN_KEYS, str(key))), found)
    elif isinstance(value, list):
        for one in value:
            _collect(one, secret, found)
    elif secret and isinstance(value, str) and len(value) > 4 and not value.startswith("/"):  # not the path of a file
        found.add(value)


# ---- the environment of units ---------------------------------------------------------------------------------------

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def environment(*prefixes: str) -> None:
    """Lines of an EnvironmentFile. What could not be one line is left out."""
    for name, value in sorted(os.environ.items()):
        if (name in _PROXIES or name.startswith(prefixes)) and "\n" not in value:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
            print(f'{name}="{quoted}"')


# ---- shared ------------------------------------------------------------------------------------------------------


def _get(url: str, trust: ssl.SSLContext | None, *, direct: bool = False, seconds: float = _SECONDS) -> bytes:
    """Return an answer, which is a short one."""
    return next(_blocks(url, trust, direct=direct, seconds=seconds), b"")


def _blocks(
    url: str, trust: ssl.SSLContext | None, *, direct: bool = False, seconds: float = _SECONDS
) -> Iterator[bytes]:
    """Yield an answer in pieces. Raises OSError, with the code of the answer if there was one."""
    import http.client
    import urllib.request

    handlers: list[urllib.request.BaseHandler] = []
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    if direct:  # servers of the cluster itself are never behind a proxy
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=seconds) as response:
            yield from iter(lambda: response.read(_CHUNK), b"")
    except http.client.HTTPException as error:
        raise OSError(str(error) or type(error).__name__) from None


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _on_host(path: str) -> str:
    return (os.environ.get("REMUDA_HOST_ROOT") or "") + path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
