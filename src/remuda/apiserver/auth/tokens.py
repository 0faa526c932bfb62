"""Service-account tokens: their claims, creation and verification.

A token is bound to its ServiceAccount and optionally to a Pod, Secret or Node, by name and uid: it becomes invalid when
one of them is deleted. Verified signatures may be cached; existence is looked up on every use. All functions are pure:
they use the given keys, lookups and time. Error messages follow upstream and never contain the token.
"""

from __future__ import annotations

import hmac
import uuid
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import msgspec

from remuda.apiserver import ApiServerError
from remuda.apiserver.auth.jws import InvalidToken, KeySet, Signer
from remuda.apiserver.auth.messages import quote_list
from remuda.apiserver.auth.user import (
    CREDENTIAL_ID,
    User,
    service_account_groups,
    service_account_username,
    split_service_account,
)
from remuda.apiserver.storage.types import StoreEntry
from remuda.kube import clock

DEFAULT_ISSUER = "https://kubernetes.default.svc.cluster.local"
LEGACY_ISSUER = "kubernetes/serviceaccount"
_LEEWAY = 60.0  # seconds of tolerated clock skew, during which a deletion is ignored too

Lookup = Callable[[str, str, str], StoreEntry | None]  # (table, namespace, name), as Store.get


class TokenRejected(ApiServerError):
    """Invalid token of this server; the text is safe to show."""


class TokenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Issuer, audiences and lifetime of tokens. Tokens of `also_accepted` issuers (our earlier ones) stay valid."""

    issuer: str = DEFAULT_ISSUER
    also_accepted: tuple[str, ...] = ()
    api_audiences: tuple[str, ...] = (DEFAULT_ISSUER,)
    max_expiration_seconds: int = 0  # 0: no limit below the API's own
    extend_expiration: bool = True  # pods' tokens outlive their hour, with a warning, as by upstream's default


class Ref(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str = ""
    uid: str = ""


class KubernetesClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    namespace: str = ""
    node: Ref | None = None
    pod: Ref | None = None
    secret: Ref | None = None
    serviceaccount: Ref = Ref()
    warnafter: int | None = None


class Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """Claims of a token, in the order of their JSON names, as upstream writes them."""

    aud: tuple[str, ...] | str = ()
    exp: int | float = 0
    iat: int | float = 0
    iss: str = ""
    jti: str = ""
    kubernetes: KubernetesClaim | None = msgspec.field(default=None, name="kubernetes.io")
    legacy_namespace: str = msgspec.field(default="", name="kubernetes.io/serviceaccount/namespace")
    legacy_secret: str = msgspec.field(default="", name="kubernetes.io/serviceaccount/secret.name")
    legacy_name: str = msgspec.field(default="", name="kubernetes.io/serviceaccount/service-account.name")
    legacy_uid: str = msgspec.field(default="", name="kubernetes.io/serviceaccount/service-account.uid")
    nbf: int | float = 0
    sub: str = ""

    @property
    def audiences(self) -> tuple[str, ...]:
        return (self.aud,) if isinstance(self.aud, str) else self.aud


_decode_claims = msgspec.json.Decoder(Claims).decode
_encode_claims = msgspec.json.Encoder().encode


# ---- making ------------------------------------------------------------------------------------------------------


def bound_claims(
    issuer: str,
    claim: KubernetesClaim,
    audiences: tuple[str, ...],
    expiration_seconds: int,
    now: float,
) -> Claims:
    issued = int(now)
    return Claims(
        aud=audiences,
        exp=issued + expiration_seconds,
        iat=issued,
        iss=issuer,
        jti=str(uuid.uuid4()),
        kubernetes=claim,
        nbf=issued,
        sub=service_account_username(claim.namespace, claim.serviceaccount.name),
    )


def sign(signer: Signer, claims: Claims) -> str:
    return signer.sign(_encode_claims(claims))


def legacy_token(signer: Signer, namespace: str, service_account: Ref, secret_name: str) -> str:
    """Create the token of a Secret of type kubernetes.io/service-account-token. It never expires and is stored in that
    Secret.
    """
    claims = Claims(
        iss=LEGACY_ISSUER,
        legacy_namespace=namespace,
        legacy_secret=secret_name,
        legacy_name=service_account.name,
        legacy_uid=service_account.uid,
        sub=service_account_username(namespace, service_account.name),
    )
    return sign(signer, claims)


# ---- reading -----------------------------------------------------------------------------------------------------


def read(keys: KeySet, settings: TokenSettings, token: str) -> Claims | None:
    """Return the claims of a token that we signed; None for other tokens. The result never changes, so it may be
    cached.
    """
    try:
        claims = _decode_claims(keys.verify(token))
    except (InvalidToken, msgspec.MsgspecError, RecursionError):
        return None
    accepted = (settings.issuer, LEGACY_ISSUER, *settings.also_accepted)
    return claims if claims.iss in accepted else None


def common_audiences(claims: Claims, settings: TokenSettings, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the wanted audiences that the token is for. Raises TokenRejected when there is none."""
    has = claims.audiences or settings.api_audiences
    common = tuple(audience for audience in has if audience in wanted)
    if not common:
        raise TokenRejected(
            f"token audiences {quote_list(has)} is invalid for the target audiences {quote_list(wanted)}"
        )
    return common


def check_times(claims: Claims, now: float) -> None:
    """Raise TokenRejected outside the token's period of validity. Legacy tokens have no limits."""
    if claims.nbf and now + _LEEWAY < claims.nbf:
        raise TokenRejected("service account token is not valid yet")
    if claims.exp and now - _LEEWAY > claims.exp:
        raise TokenRejected("service account token has expired")
    if claims.iat and now + _LEEWAY < claims.iat:
        raise TokenRejected("service account token is issued in the future")


def check_existence(claims: Claims, token: str, lookup: Lookup, now: float) -> None:
    """Raise TokenRejected unless all objects that the token is bound to exist.

    The result depends only on the entries looked up and, if they are being deleted, on the time.
    """
    if claims.iss == LEGACY_ISSUER:
        _check_legacy(claims, token, lookup)
    else:
        _check_bound(claims.kubernetes or KubernetesClaim(), lookup, now)


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None


class _Stored(msgspec.Struct):
    metadata: _Meta


class _StoredSecret(_Stored):
    data: dict[str, str] | None = None


_decode_stored = msgspec.json.Decoder(_Stored).decode
_decode_secret = msgspec.json.Decoder(_StoredSecret).decode


def _check_bound(claim: KubernetesClaim, lookup: Lookup, now: float) -> None:
    namespace, account = claim.namespace, claim.serviceaccount
    entry = lookup("serviceaccounts", namespace, account.name)
    if entry is None:
        raise TokenRejected(f'serviceaccounts "{account.name}" not found')
    meta = _decode_stored(entry.value).metadata
    if meta.uid != account.uid:
        raise TokenRejected(f"service account UID ({meta.uid}) does not match claim ({account.uid})")
    if _is_deleted(meta, now):
        raise TokenRejected(f"service account {namespace}/{account.name} has been deleted")
    if claim.secret is not None:
        _check_exists("secret", lookup("secrets", namespace, claim.secret.name), claim.secret, now)
    if claim.pod is not None:
        _check_exists("pod", lookup("pods", namespace, claim.pod.name), claim.pod, now)
    elif claim.node is not None:
        # A node in a pod's token only records where the pod ran. Without a pod, the token is bound to the node.
        _check_exists("node", lookup("nodes", "", claim.node.name), claim.node, now)


def _check_exists(what: str, entry: StoreEntry | None, ref: Ref, now: float) -> None:
    if entry is None:
        raise TokenRejected("service account token has been invalidated")
    meta = _decode_stored(entry.value).metadata
    if meta.uid != ref.uid:
        raise TokenRejected(f"{what} UID ({meta.uid}) does not match service account {what} ref claim ({ref.uid})")
    if _is_deleted(meta, now):
        raise TokenRejected("service account token has been invalidated")


def _is_deleted(meta: _Meta, now: float) -> bool:
    return meta.deletion_timestamp is not None and clock.parse(meta.deletion_timestamp) < now - _LEEWAY


_LEGACY_INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"


def _check_legacy(claims: Claims, token: str, lookup: Lookup) -> None:
    namespace, name = claims.legacy_namespace, claims.legacy_name
    if split_service_account(claims.sub) != (namespace, name) or not claims.legacy_uid:
        raise TokenRejected("sub claim is invalid")
    secret = lookup("secrets", namespace, claims.legacy_secret)
    stored = _decode_secret(secret.value) if secret is not None else None
    if stored is None or stored.metadata.deletion_timestamp is not None:
        raise TokenRejected("Token has been invalidated")
    # The Secret must contain this token, so that replacing it revokes the old one. Compared in constant time, as any
    # secret.
    if not hmac.compare_digest(_kept_token(stored), token.encode()):
        raise TokenRejected("Token does not match server's copy")
    account = lookup("serviceaccounts", namespace, name)
    if account is None:
        raise TokenRejected(f'serviceaccounts "{name}" not found')
    meta = _decode_stored(account.value).metadata
    if meta.deletion_timestamp is not None:
        raise TokenRejected(f"ServiceAccount {namespace}/{name} has been deleted")
    if meta.uid != claims.legacy_uid:
        raise TokenRejected(f"ServiceAccount UID ({meta.uid}) does not match claim ({claims.legacy_uid})")
    if (stored.metadata.labels or {}).get(_LEGACY_INVALID_SINCE):
        raise TokenRejected(
            f"the token in secret {namespace}/{claims.legacy_secret} for service account {namespace}/{name} has been "
            "marked invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove "
            f"the '{_LEGACY_INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        )


def _kept_token(stored: _StoredSecret) -> bytes:
    try:
        return b64decode((stored.data or {}).get("token", ""), validate=True)
    except ValueError:
        return b""


def user_of(claims: Claims) -> User:
    """Return the user of a valid token, without system:authenticated."""
    if claims.iss == LEGACY_ISSUER:
        return _user(claims.legacy_namespace, Ref(claims.legacy_name, claims.legacy_uid), {})
    claim = claims.kubernetes or KubernetesClaim()
    return _user(claim.namespace, claim.serviceaccount, _extra(claims, claim))


def _user(namespace: str, account: Ref, extra: dict[str, tuple[str, ...]]) -> User:
    username = service_account_username(namespace, account.name)
    return User(username, account.uid, service_account_groups(namespace), extra)


def _extra(claims: Claims, claim: KubernetesClaim) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    if claim.pod is not None and claim.pod.name and claim.pod.uid:
        extra["authentication.kubernetes.io/pod-name"] = (claim.pod.name,)
        extra["authentication.kubernetes.io/pod-uid"] = (claim.pod.uid,)
    if claims.jti:
        extra[CREDENTIAL_ID] = (f"JTI={claims.jti}",)
    if claim.node is not None and claim.node.name:
        extra["authentication.kubernetes.io/node-name"] = (claim.node.name,)
        if claim.node.uid:
            extra["authentication.kubernetes.io/node-uid"] = (claim.node.uid,)
    return extra


def openid_configuration(settings: TokenSettings, keys: KeySet, jwks_uri: str) -> dict[str, Any]:
    """Return the document at /.well-known/openid-configuration."""
    return {
        "issuer": settings.issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": keys.algorithms,
    }
