"""Redact secrets from data that users hand to others (`remuda diagnose`). Pure.

Three filters apply. Fields with secret names lose their values. Texts lose everything that looks like a secret (keys,
tokens, passwords in URLs and on command lines). All data loses the values of Secrets, verbatim and in base64. Secrets
themselves appear with names, keys and sizes, never with values or hashes. In doubt a value is hidden: missing data can
be requested later, a leaked secret cannot be taken back.

Nodes and tenants write some of these Secrets. Therefore gzip content is unpacked and YAML is parsed up to limits only,
and `Redactor.unread` lists each value that was not searched for this reason.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from remuda.agent import formats
from remuda.providers.shared.jobs.log_redaction import HIDDEN

Json = dict[str, Any]

_WORDS = (
    r"pass(?!iv|ed|ing|es|th)|pwd|secret|token|private[_-]?key|credential|"
    r"access[_-]?key|api[_-]?key|auth[_-]?key|client[_-]?key|key[_-]?data|certificate[_-]?key|kubeconfig|bearer|"
    r"authorization|^hash$|user[_-]?data|cloud[_-]?(?:init|config)|additional[_-]?manifest|ssh[_-]?key|id[_-]rsa|[_-]pat$"
)
_SECRET_NAME = re.compile(_WORDS, re.IGNORECASE)
# Names of fields that describe a secret without containing it: its name, its location, its lifetime.
_ABOUT = re.compile(
    r"(?:names?|refs?|namespaces?|ttl|kind|type|mode|count|version|generation|url|path|file|id|expires?(?:at)?|"
    r"expiration|time(?:out|stamp)?|seconds|annotations?|labels?)$",
    re.IGNORECASE,
)
_PLAIN_VARIABLES = re.compile(r"(?:https?|no|all)_proxy|(?:INSTALL|REMUDA|POD)_\w+|PATH|HOME", re.IGNORECASE)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_LEAST = 5  # characters; shorter values would match everywhere
_MOST_UNPACKED = 8 << 20  # bytes of one value of a Secret; plan outputs are the largest, and smaller
_MOST_YAML = 1 << 20  # characters, the size limit of a Secret; the YAML parser takes seconds per million
_DEEPEST = 16  # nested encodings; a gzip file can be crafted to contain itself

_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z0-9 ]*-----(?:.*?-----END [A-Z0-9 ]*-----|[A-Za-z0-9+/=\s\\]*)", re.DOTALL
)
_SHAPES = (
    _BLOCK,
    re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=]{8,}"),  # any PEM block in base64
    re.compile(r"\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*"),  # a JSON web token
    re.compile(r"\bK10[0-9a-f]{64}(?:::[^\s\"']*)?"),
    re.compile(r"(?<=[a-z0-9]:)[a-z2-7]{52}\b"),  # secret of a user's token
    re.compile(r"\b(?:machine|cluster)\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{20,}"),  # registration token of a host
    re.compile(r"(?i)(?<=bearer )[^\s\"']{5,}|(?<=basic )[A-Za-z0-9+/=]{8,}"),
    re.compile(r"(?<=://)[^/\s@\"']+(?=@)"),  # credentials in a URL
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAGE-SECRET-KEY-[0-9A-Z]+"),
    re.compile(r"\$[0-9a-z]{1,2}\$[^\s\"']{8,}"),  # a crypt(3) password hash
)
_WORD = rf"(?:{_WORDS})[\w.-]{{0,40}}"  # anything may precede the word
_ASSIGNED = re.compile(rf"(?i)({_WORD})([\"']?\s*=\s*[\"']?)([^\s\"',;&]+)")
_YAML_FIELD = re.compile(rf"(?im)({_WORD})([\"']?:\s*[\"']?)([^\s\"',;&]+)(?=[\"',;}}\]]|\s*$)")
_OPTION = re.compile(rf"(?i)(--[\w.-]{{0,40}}?{_WORD})([ ])([^\s-][^\s]*)")


class Redactor:
    """Filter for objects and texts. `secret_fields`: additional secret fields, by kind."""

    def __init__(self, secret_fields: Mapping[str, Collection[str]] | None = None) -> None:
        self._fields = {kind: frozenset(names) for kind, names in (secret_fields or {}).items()}
        self.unread: list[str] = []  # values of Secrets that were not searched, and why
        self._known: set[str] = set()
        self._sorted: list[str] | None = None

    def learn(self, secret: str) -> None:
        """Add a value to redact, verbatim and in base64."""
        value = secret.strip()
        if len(value) < _LEAST:
            return
        self._known.add(value)
        self._sorted = None
        encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
        if len(encoded) >= 2 * _LEAST:
            self._known.add(encoded)

    def learn_secret(self, secret: Json, public: Collection[str] = ()) -> None:
        """Add all values of a Secret, or of a Secret's manifest. `public`: values that are not secret."""
        for value in values_of(secret, self.unread.append):
            if value not in public:
                self.learn(value)

    @property
    def known(self) -> list[str]:
        """Return the values to redact, the longest first: one may be a part of another."""
        if self._sorted is None:
            self._sorted = sorted(self._known, key=lambda one: (-len(one), one))
        return self._sorted

    def text(self, text: str) -> str:
        for value in self.known:
            if value in text:
                text = text.replace(value, HIDDEN)
        for shape in _SHAPES:
            text = shape.sub(HIDDEN, text)
        for assignment in (_OPTION, _ASSIGNED, _YAML_FIELD):
            text = assignment.sub(_hidden, text)
        return text

    def obj(self, obj: Json) -> Json:
        """Return a redacted object of any kind but Secret, without its managedFields."""
        metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
        if annotations := metadata.get("annotations"):
            metadata["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
        found: Json = self._walk({**obj, "metadata": metadata}, self._fields.get(str(obj.get("kind")), frozenset()))
        return found

    def value(self, value: Any) -> Any:
        """Return a redacted part of an object."""
        return self._walk(value, frozenset())

    def _walk(self, value: Any, fields: frozenset[str], secret: bool = False) -> Any:
        """Redact recursively. `secret`: the value is in a secret field."""
        if isinstance(value, str):
            return HIDDEN if value and secret else self.text(value)
        if isinstance(value, list | tuple):
            return [self._walk(one, fields, secret) for one in value]
        if not isinstance(value, dict):
            return value
        if "name" in value and "value" in value and not _PLAIN_VARIABLES.fullmatch(str(value["name"])):
            value = {**value, "value": HIDDEN}
        return {
            key: self._walk(one, fields, key in fields or is_secret(key) or (secret and not _ABOUT.search(key)))
            for key, one in value.items()
        }


def is_secret(name: str) -> bool:
    """Return whether a field is secret, by its name alone."""
    return _SECRET_NAME.search(name) is not None and _ABOUT.search(name) is None


def _hidden(found: re.Match[str]) -> str:
    name, sign, _ = found.groups()
    return f"{name}{sign}{HIDDEN}" if is_secret(name) else found[0]


# ---- Secrets ---------------------------------------------------------------------------------------------------------

# Types of Secrets in which only some values are secret; in all other types every value is.
_OURS = ("rke.cattle.io/machine-plan", "rke.cattle.io/machine-state", "rke.cattle.io/machine-request")
_PUBLIC_KEYS = frozenset({"ca.crt", "tls.crt", "namespace", "known_hosts", "cacerts"})
_PUBLIC_VALUE = re.compile(r"true|false|\d{1,7}|https?://[^@\s]*|[0-9.]+(?::\d+)?", re.IGNORECASE)
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{20,}")


def outline(secret: Json) -> Json:
    """Return a Secret or ConfigMap without values: its keys and their sizes."""
    metadata = secret["metadata"]
    sizes = {key: f"{len(_bytes(value))} bytes" for key, value in (secret.get("data") or {}).items()}
    sizes |= {key: f"{len(_bytes(value))} bytes" for key, value in (secret.get("binaryData") or {}).items()}
    kept = ("name", "namespace", "creationTimestamp", "deletionTimestamp", "labels", "finalizers", "ownerReferences")
    found: Json = {key: metadata[key] for key in kept if metadata.get(key)}
    found["annotations"] = sorted(metadata.get("annotations") or {})
    return {**({"type": secret["type"]} if secret.get("type") else {}), "metadata": found, "keys": sizes}


def values_of(secret: Json, unread: Callable[[str], None] = lambda note: None) -> Iterator[str]:
    """Yield the values of a Secret to redact. `unread` is called with a note for each value that is too large."""
    ours = secret.get("type") in _OURS
    metadata = secret.get("metadata") or {}
    for key, encoded in (secret.get("data") or {}).items():
        if key in _PUBLIC_KEYS or not isinstance(encoded, str):
            continue
        value = _Value()
        text = value.decoded(encoded)
        if text is None:
            yield encoded
        elif "\n" not in text.strip() and not text.lstrip().startswith(("{", "[")):
            if (not ours or is_secret(key)) and not _PUBLIC_VALUE.fullmatch(text.strip()):
                yield text
        else:
            yield from value.within(text)
        if value.unread:
            name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
            unread(f"Secret {name}: {key} was not searched for secrets: {value.unread}")
    for one in (secret.get("stringData") or {}).values():
        yield str(one)


class _Value:
    """Search of one value of a Secret, with a limit on unpacking. `unread`: why a part was not searched."""

    def __init__(self) -> None:
        self.unread = ""
        self._left = _MOST_UNPACKED

    def decoded(self, encoded: str) -> str | None:
        try:
            text = _decoded(encoded, self._left)
        except formats.TooLarge:
            self.unread = f"it unpacks to more than {_MOST_UNPACKED} bytes"
            return None
        self._left -= len(text or "")
        return text

    def within(self, text: str, depth: int = 0) -> Iterator[str]:
        """Yield the secrets in a text of several lines: a script, a key, a kubeconfig, a plan."""
        for block in _BLOCK.findall(text):
            yield from _KEY_LINE.findall(block)
        for pattern in (_OPTION, _ASSIGNED, _YAML_FIELD):
            for name, _, value in pattern.findall(text):
                if is_secret(name):
                    yield value.rstrip(")}];,")
        for name, value in _leaves(self._parsed(text)):
            # `content` is a file of a plan in base64: its text is searched, but the value as a whole is no secret.
            if name != "content" and (not is_secret(name) or len(value) < _LEAST or _PUBLIC_VALUE.fullmatch(value)):
                continue
            if name != "content":
                yield value
            inner = self.decoded(value)
            if inner is None or (inner == value and name == "content"):
                continue
            if depth == _DEEPEST:
                self.unread = f"it has more than {_DEEPEST} nested encodings"
                continue
            yield from self.within(inner, depth + 1)

    def _parsed(self, text: str) -> Any:
        import msgspec
        import yaml

        from remuda.kube import untrusted_yaml

        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            pass
        if len(text) > _MOST_YAML:
            self.unread = f"it has more than {_MOST_YAML} characters of YAML"
            return None
        try:
            return untrusted_yaml.load(text)
        except untrusted_yaml.TooComplex as error:
            self.unread = str(error)
        except yaml.YAMLError:
            pass
        return None


def _leaves(root: Any) -> Iterator[tuple[str, str]]:
    """Yield all strings with the names of their fields. Each mapping and list is visited once per name: with YAML
    aliases, a few hundred bytes can describe billions of nodes."""
    seen: set[tuple[int, str]] = set()
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, str):
            yield name, value
        elif isinstance(value, dict | list) and (id(value), name) not in seen:
            seen.add((id(value), name))
            waiting += (
                ((str(key), one) for key, one in value.items())
                if isinstance(value, dict)
                else ((name, one) for one in value)
            )


# ---- plans -----------------------------------------------------------------------------------------------------------

_PLANS = ("plan", "appliedPlan")
_RESULTS = ("plan-state", "plan-revision", "failure-count", "success-count", "max-failures", "last-apply-time")
_REDACTED_RESULTS = ("failed-message", "probe-statuses")


def plan(secret: Json, redactor: Redactor) -> Json:
    """Return the plan and the report in a plan Secret. Sizes replace the contents of files. Of the outputs, only the
    last error of the unit is kept."""
    import msgspec

    from remuda.agent import rules
    from remuda.providers.controlplane import plan_secrets

    found: Json = {"metadata": outline(secret)["metadata"]}
    data: dict[str, str] = {}
    for key in (*_PLANS, *_RESULTS, *_REDACTED_RESULTS):
        try:
            data[key] = _decoded(str((secret.get("data") or {}).get(key) or ""), _MOST_UNPACKED) or ""
        except formats.TooLarge as error:
            found[key] = f"left out: it {error}"
    for key in _PLANS:
        if data.get(key):
            try:
                found[key] = _plan(msgspec.json.decode(data[key].encode()), redactor)
            except (msgspec.DecodeError, RecursionError, AttributeError, TypeError):
                found[key] = f"not a valid plan: {len(data[key])} bytes"
    found |= {key: data[key] for key in _RESULTS if data.get(key)}
    found |= {key: redactor.text(data[key]) for key in _REDACTED_RESULTS if data.get(key)}
    outputs = _bytes(str((secret.get("data") or {}).get(rules.PERIODIC_OUTPUT) or ""))
    if (unit := plan_secrets.unit_status({rules.PERIODIC_OUTPUT: outputs})) is not None:
        found[plan_secrets.UNIT_STATUS] = {"state": unit.state, "error": redactor.text(unit.error)}
    return found


def _plan(plan: Json, redactor: Redactor) -> Json:
    files = [
        {**redactor.value(one), "content": f"{len(_bytes(str(one.get('content') or '')))} bytes"}
        for one in plan.get("files") or ()
    ]
    rest: Json = redactor.value({key: value for key, value in plan.items() if key != "files"})
    for instruction in _instructions(rest):
        if instruction.get("env"):
            instruction["env"] = [f"{str(one).partition('=')[0]}={HIDDEN}" for one in instruction["env"]]
    return {"files": files, **rest}


def _instructions(plan: Json) -> Iterable[Json]:
    for key in ("instructions", "oneTimeInstructions", "periodicInstructions"):
        yield from (one for one in plan.get(key) or () if isinstance(one, dict))


# ---- encodings -------------------------------------------------------------------------------------------------------


def _bytes(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return encoded.encode()


def _decoded(encoded: str, most: int) -> str | None:
    """Return the decoded and unpacked text; None if it is binary. Raises TooLarge for more than `most` bytes."""
    raw = _bytes(encoded)
    try:
        return (formats.inflate(raw, most) if raw[:2] == b"\x1f\x8b" else raw).decode()
    except formats.TooLarge:
        raise
    except ValueError:
        return None
