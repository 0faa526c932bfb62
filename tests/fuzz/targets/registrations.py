"""What hosts and users present: registration headers, join tokens, bearer tokens, tokens of lists."""

from __future__ import annotations

import base64

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from remuda.apiserver.auth import tokens as service_accounts
from remuda.apiserver.auth.jws import KeySet, encode_segment
from remuda.apiserver.registry.reads import parse_continuation
from remuda.kube.errors import StatusError
from remuda.providers.bootstrap import custom
from remuda.providers.bootstrap import tokens as join_tokens
from tests.fuzz.source import Source

_KEYS = KeySet([ec.derive_private_key(7, ec.SECP256R1()).public_key()])
_HEADERS = ("id", "node-name", "address", "internal-address", "labels", "taints", "role-etcd", "role-worker")
_LABELS = ("a=b", ",", "=", "node-role.kubernetes.io/etcd=true", "a/b/c=d", "a=b:NoSchedule", " ", "kubernetes.io/x=")
_CLAIMS = (
    "iss",
    "sub",
    "aud",
    "exp",
    "alg",
    "none",
    "ES256",
    "kid",
    "crit",
    "kubernetes.io",
    "namespace",
    "serviceaccount",
)


def check(data: bytes) -> None:
    """Raise if something is neither read nor refused, or a token that nobody signed is accepted."""
    source = Source(data)
    source.pick((_check_host, _check_join_token, _check_bearer, _check_continuation))(source)


def _check_host(source: Source) -> None:
    def value() -> str:
        return "".join(source.pick(_LABELS) for _ in range(source.byte() % 6)) + source.text()

    headers = {custom.PREFIX + name: value() for name in _HEADERS if source.flag()}
    headers[f"{custom.PREFIX}id"] = source.text()
    try:
        request = custom.read(custom.collect(headers))
    except custom.BadRequest:
        return
    assert not any(custom.is_reserved(label) for label in request.labels)
    try:
        custom.decode(source.rest())
    except custom.BadRequest:
        pass


def _check_join_token(source: Source) -> None:
    text = source.rest().decode("utf-8", "replace")
    join_tokens.parse(text)
    ledger = join_tokens.read(text)
    assert join_tokens.write(join_tokens.read(join_tokens.write(ledger))) == join_tokens.write(ledger)
    join_tokens.seconds_fresh(ledger, 60.0)


def _check_bearer(source: Source) -> None:
    if source.flag():
        text = source.rest().decode("utf-8", "replace")
    else:
        parts = [msgspec.json.encode(source.object(_CLAIMS, 3)) for _ in range(2)] + [source.take(64)]
        text = b".".join(encode_segment(part) for part in parts).decode()
    assert service_accounts.read(_KEYS, service_accounts.TokenSettings(), text) is None


def _check_continuation(source: Source) -> None:
    content = source.rest()
    for text in (content.decode("utf-8", "replace"), base64.urlsafe_b64encode(content).decode().rstrip("=")):
        try:
            parse_continuation(text)
        except StatusError as error:
            assert error.code in (400, 410), error
