from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from remuda.apiserver.auth import tokens
from remuda.apiserver.auth.jws import InvalidToken, KeySet, Signer, key_id
from remuda.apiserver.auth.token_authenticators import ServiceAccountTokens
from remuda.apiserver.auth.token_request import Issued, request_token
from remuda.apiserver.auth.tokens import DEFAULT_ISSUER, Ref, TokenRejected, TokenSettings
from remuda.kube.clock import rfc3339
from remuda.kube.errors import StatusError

from .fakes import FakeStore

KEY = ec.generate_private_key(ec.SECP256R1())
SIGNER = Signer(KEY)
KEYS = KeySet([KEY.public_key()])
SETTINGS = TokenSettings()
NOW = 1_800_000_000.0
API = (DEFAULT_ISSUER,)


@pytest.fixture
def store() -> FakeStore:
    store = FakeStore()
    put(store, "serviceaccounts", "ns", "robot", "sa-uid")
    return store


def put(store: FakeStore, table: str, namespace: str, name: str, uid: str, **more: Any) -> None:
    metadata = {"name": name, "namespace": namespace, "uid": uid, **more.pop("metadata", {})}
    store.put(table, {"metadata": metadata, **more})


def ask(store: FakeStore, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    settings = more.pop("settings", SETTINGS)
    obj = {"spec": spec or {}, **more}
    arguments = {"settings": settings, "signer": SIGNER, "lookup": store.get, "now": NOW}
    return request_token(obj, "ns", "robot", **arguments).obj


def claims_of(obj: dict[str, Any]) -> dict[str, Any]:
    """Read by an independent implementation."""
    claims: dict[str, Any] = jwt.decode(
        obj["status"]["token"],
        KEY.public_key(),
        algorithms=["ES256"],
        options={"verify_aud": False, "verify_exp": False, "verify_iat": False, "verify_nbf": False},
    )
    return claims


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def authenticator(store: FakeStore, clock: Clock | None = None) -> ServiceAccountTokens:
    return ServiceAccountTokens(KEYS, SETTINGS, store.get, clock or Clock())


# ---- what is issued -----------------------------------------------------------------------------------------------


def test_service_account_token_claims_match_upstream(store: FakeStore) -> None:
    obj = ask(store)
    token = obj["status"]["token"]
    assert json.loads(_decoded(token.split(".")[0])) == {"alg": "ES256", "kid": key_id(KEY.public_key())}
    claims = claims_of(obj)
    jti = claims.pop("jti")
    assert len(jti) == 36
    assert claims == {
        "aud": [DEFAULT_ISSUER],
        "exp": int(NOW) + 3600,
        "iat": int(NOW),
        "iss": DEFAULT_ISSUER,
        "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "robot", "uid": "sa-uid"}},
        "nbf": int(NOW),
        "sub": "system:serviceaccount:ns:robot",
    }
    keys = list(json.loads(_decoded(token.split(".")[1])))
    assert keys == sorted(keys)


def test_token_request_response_contains_request_with_defaults(store: FakeStore) -> None:
    obj = ask(store, {"audiences": ["vault"], "expirationSeconds": 601})
    assert obj["kind"] == "TokenRequest"
    assert obj["apiVersion"] == "authentication.k8s.io/v1"
    (asked,) = obj["metadata"].pop("managedFields")
    assert asked["fieldsV1"] == {"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}}
    assert (asked["operation"], asked["subresource"], asked["time"]) == ("Update", "token", rfc3339(NOW))
    assert obj["metadata"] == {
        "name": "robot",
        "namespace": "ns",
        "uid": "sa-uid",
        "creationTimestamp": rfc3339(NOW),
    }
    assert obj["spec"] == {"audiences": ["vault"], "expirationSeconds": 601, "boundObjectRef": None}
    assert obj["status"]["expirationTimestamp"] == rfc3339(NOW + 601)


def test_rsa_key_signs_tokens_with_rs256(store: FakeStore) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    token = tokens.legacy_token(Signer(key), "ns", Ref("robot", "sa-uid"), "s")
    assert jwt.decode(token, key.public_key(), algorithms=["RS256"])["iss"] == "kubernetes/serviceaccount"
    keys = KeySet([key.public_key(), KEY.public_key()])
    assert tokens.read(keys, SETTINGS, token) is not None
    assert keys.algorithms == ["ES256", "RS256"]
    for shown, algorithm in zip(keys.jwks()["keys"], ("RS256", "ES256"), strict=True):
        assert jwt.PyJWK(shown).algorithm_name == algorithm


def test_published_jwks_verifies_issued_tokens(store: FakeStore) -> None:
    token = ask(store)["status"]["token"]
    (shown,) = KEYS.jwks()["keys"]
    assert shown["kid"] == jwt.get_unverified_header(token)["kid"]
    jwt.decode(
        token,
        jwt.PyJWK(shown).key,
        algorithms=["ES256"],
        options={"verify_aud": False, "verify_iat": False, "verify_nbf": False, "verify_exp": False},
    )
    document = tokens.openid_configuration(SETTINGS, KEYS, "https://host/openid/v1/jwks")
    assert document["id_token_signing_alg_values_supported"] == ["ES256"]
    assert document["issuer"] == DEFAULT_ISSUER


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [(599, "less than 10 minutes"), (0, "less than 10 minutes"), ((1 << 32) + 1, "larger than 2^32 seconds")],
)
def test_token_request_with_lifetime_out_of_range_returns_422(store: FakeStore, seconds: int, sentence: str) -> None:
    with pytest.raises(StatusError) as caught:
        ask(store, {"expirationSeconds": seconds})
    assert caught.value.code == 422
    assert caught.value.message == (
        f'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: {seconds}: '
        f"may not specify a duration {sentence}"
    )


def test_configured_maximum_shortens_token_lifetime_with_warning(store: FakeStore) -> None:
    settings = TokenSettings(max_expiration_seconds=700)
    issued = request_token(
        {"spec": {"expirationSeconds": 900}},
        "ns",
        "robot",
        settings=settings,
        signer=SIGNER,
        lookup=store.get,
        now=NOW,
    )
    assert issued.warnings == ["requested expiration of 900 seconds shortened to 700 seconds"]
    assert claims_of(issued.obj)["exp"] == int(NOW) + 700


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (5, "number into Go struct field TokenRequest.spec of type v1.TokenRequestSpec"),
        (
            {"expirationSeconds": "x"},
            "string into Go struct field TokenRequestSpec.spec.expirationSeconds of type int64",
        ),
        ({"audiences": "x"}, "string into Go struct field TokenRequestSpec.spec.audiences of type []string"),
        (
            {"boundObjectRef": [1]},
            "array into Go struct field TokenRequestSpec.spec.boundObjectRef of type v1.BoundObjectReference",
        ),
        (
            {"boundObjectRef": {"kind": 5}},
            "number into Go struct field BoundObjectReference.spec.boundObjectRef.kind of type string",
        ),
        ({"audiences": [[[]]]}, "array into Go struct field TokenRequestSpec.spec.audiences of type string"),
    ],
)
def test_malformed_token_request_returns_400(store: FakeStore, spec: Any, complaint: str) -> None:
    with pytest.raises(StatusError) as caught:
        ask(store, spec)
    assert caught.value.code == 400
    assert caught.value.message == (
        f'TokenRequest in version "v1" cannot be handled as a TokenRequest: json: cannot unmarshal {complaint}'
    )


def test_token_request_unknown_fields_follow_field_validation(store: FakeStore) -> None:
    def issue(validation: Any) -> Issued:
        obj = {"spec": {"unknown": 1, "expirationSeconds": None}, "status": None}
        return request_token(
            obj,
            "ns",
            "robot",
            settings=SETTINGS,
            signer=SIGNER,
            lookup=store.get,
            now=NOW,
            field_validation=validation,
        )

    assert issue("Warn").warnings == ['unknown field "spec.unknown"']
    assert issue("Ignore").warnings == []
    assert issue("Ignore").obj["spec"]["expirationSeconds"] == 3600
    assert "unknown" not in issue("Ignore").obj["spec"]
    with pytest.raises(StatusError, match=r'strict decoding error: unknown field "spec\.unknown"$'):
        issue("Strict")


def test_token_request_for_missing_service_account_returns_404(store: FakeStore) -> None:
    store.delete("serviceaccounts", "ns", "robot")
    with pytest.raises(StatusError, match=r'^serviceaccounts "robot" not found$'):
        ask(store)


@pytest.mark.parametrize(
    ("metadata", "code", "sentence"),
    [
        ({"name": "x"}, 422, "must match the service account name if specified"),
        ({"namespace": "x"}, 422, "must match the service account namespace if specified"),
        ({"uid": "x"}, 409, "the UID in the token request (x) does not match the UID of the service account (sa-uid)"),
    ],
)
def test_token_request_metadata_must_match_service_account(
    store: FakeStore, metadata: dict[str, str], code: int, sentence: str
) -> None:
    with pytest.raises(StatusError) as caught:
        ask(store, metadata=metadata)
    assert caught.value.code == code
    assert sentence in caught.value.message


def bound(kind: str, name: str = "it", **more: str) -> dict[str, Any]:
    return {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, **more}}


def test_bound_token_claims_name_pod_secret_or_node(store: FakeStore) -> None:
    put(store, "pods", "ns", "it", "pod-uid", spec={"serviceAccountName": "robot", "nodeName": "n1"})
    put(store, "secrets", "ns", "it", "secret-uid")
    put(store, "nodes", "", "it", "node-uid")
    pod = claims_of(ask(store, bound("Pod")))["kubernetes.io"]
    assert pod["pod"] == {"name": "it", "uid": "pod-uid"}
    assert pod["node"] == {"name": "n1"}  # that Node does not exist: named without a uid
    put(store, "nodes", "", "n1", "n1-uid")
    assert claims_of(ask(store, bound("Pod")))["kubernetes.io"]["node"] == {"name": "n1", "uid": "n1-uid"}
    secret = claims_of(ask(store, bound("Secret", uid="secret-uid")))["kubernetes.io"]
    assert secret["secret"] == {"name": "it", "uid": "secret-uid"}
    assert claims_of(ask(store, bound("Node")))["kubernetes.io"]["node"] == {"name": "it", "uid": "node-uid"}


def test_token_request_with_invalid_bound_object_is_rejected(store: FakeStore) -> None:
    with pytest.raises(StatusError, match=r'^pods "it" not found$'):
        ask(store, bound("Pod"))
    put(store, "pods", "ns", "it", "pod-uid", spec={"serviceAccountName": "other"})
    with pytest.raises(StatusError, match="to pod running with different serviceaccount name"):
        ask(store, bound("Pod"))
    put(store, "secrets", "ns", "it", "secret-uid")
    with pytest.raises(StatusError, match=r"the UID in the bound object reference \(old\)") as caught:
        ask(store, bound("Secret", uid="old"))
    assert caught.value.code == 409
    with pytest.raises(StatusError, match="cannot bind token to object of type /v1, Kind=ConfigMap"):
        ask(store, bound("ConfigMap"))


def test_projected_token_is_extended_to_a_year_with_warnafter(store: FakeStore) -> None:
    put(store, "pods", "ns", "it", "pod-uid", spec={"serviceAccountName": "robot"})
    obj = ask(store, {"expirationSeconds": 3607, **bound("Pod")})
    claims = claims_of(obj)
    assert claims["exp"] == int(NOW) + 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] == int(NOW) + 3607
    assert obj["status"]["expirationTimestamp"] == rfc3339(NOW + 3607)
    for other in ({"expirationSeconds": 3608}, {"expirationSeconds": 3607, "audiences": ["vault"]}):
        assert "warnafter" not in claims_of(ask(store, {**other, **bound("Pod")}))["kubernetes.io"]


# ---- what is accepted ---------------------------------------------------------------------------------------------


def test_valid_token_authenticates_service_account(store: FakeStore) -> None:
    put(store, "pods", "ns", "it", "pod-uid", spec={"serviceAccountName": "robot", "nodeName": "n1"})
    obj = ask(store, bound("Pod"))
    found = authenticator(store).authenticate_token(obj["status"]["token"], API)
    assert found is not None
    assert found.audiences == API
    assert found.user.name == "system:serviceaccount:ns:robot"
    assert found.user.uid == "sa-uid"
    assert found.user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    assert found.user.extra == {
        "authentication.kubernetes.io/pod-name": ("it",),
        "authentication.kubernetes.io/pod-uid": ("pod-uid",),
        "authentication.kubernetes.io/node-name": ("n1",),
        "authentication.kubernetes.io/credential-id": (f"JTI={claims_of(obj)['jti']}",),
    }


def rejection(checker: ServiceAccountTokens, token: str, audiences: tuple[str, ...] = API) -> str:
    with pytest.raises(TokenRejected) as caught:
        checker.authenticate_token(token, audiences)
    assert token not in str(caught.value)
    return str(caught.value)


def test_token_expiry_and_not_before_are_checked_on_every_use(store: FakeStore) -> None:
    clock = Clock()
    checker = authenticator(store, clock)
    token = ask(store)["status"]["token"]
    assert checker.authenticate_token(token, API)
    clock.now = NOW + 3600 + 59
    assert checker.authenticate_token(token, API)
    clock.now = NOW + 3600 + 61
    assert rejection(checker, token) == "service account token has expired"
    clock.now = NOW - 61
    assert rejection(checker, token) == "service account token is not valid yet"


def test_token_audiences_must_intersect_target_audiences(store: FakeStore) -> None:
    checker = authenticator(store)
    token = ask(store, {"audiences": ["vault", "other"]})["status"]["token"]
    assert rejection(checker, token) == (
        f'token audiences ["vault" "other"] is invalid for the target audiences ["{DEFAULT_ISSUER}"]'
    )
    found = checker.authenticate_token(token, ("other", "third"))
    assert found is not None
    assert found.audiences == ("other",)


@pytest.mark.parametrize(("kind", "table", "namespace"), [("Secret", "secrets", "ns"), ("Node", "nodes", "")])
def test_deleted_or_replaced_bound_object_invalidates_token(
    store: FakeStore, kind: str, table: str, namespace: str
) -> None:
    put(store, table, namespace, "it", "uid-1")
    checker = authenticator(store)
    token = ask(store, bound(kind))["status"]["token"]
    assert checker.authenticate_token(token, API)
    put(store, table, namespace, "it", "uid-2")
    what = kind.lower()
    expected = f"{what} UID (uid-2) does not match service account {what} ref claim (uid-1)"
    assert rejection(checker, token) == expected
    store.delete(table, namespace, "it")
    assert rejection(checker, token) == "service account token has been invalidated"


def test_deleted_pod_or_service_account_invalidates_token(store: FakeStore) -> None:
    put(store, "pods", "ns", "it", "pod-uid", spec={"serviceAccountName": "robot"})
    checker = authenticator(store)
    token = ask(store, bound("Pod"))["status"]["token"]
    assert checker.authenticate_token(token, API)
    store.delete("pods", "ns", "it")
    assert rejection(checker, token) == "service account token has been invalidated"
    plain = ask(store)["status"]["token"]
    put(store, "serviceaccounts", "ns", "robot", "another")
    assert rejection(checker, plain) == "service account UID (another) does not match claim (sa-uid)"
    store.delete("serviceaccounts", "ns", "robot")
    assert rejection(checker, plain) == 'serviceaccounts "robot" not found'


def test_service_account_deleting_for_over_a_minute_invalidates_token(store: FakeStore) -> None:
    checker = authenticator(store)
    token = ask(store)["status"]["token"]
    put(store, "serviceaccounts", "ns", "robot", "sa-uid", metadata={"deletionTimestamp": rfc3339(NOW - 30)})
    assert checker.authenticate_token(token, API)
    put(store, "serviceaccounts", "ns", "robot", "sa-uid", metadata={"deletionTimestamp": rfc3339(NOW - 61)})
    assert rejection(checker, token) == "service account ns/robot has been deleted"


def test_token_of_deleting_service_account_expires_without_another_write(store: FakeStore) -> None:
    clock = Clock()
    checker = authenticator(store, clock)
    token = ask(store)["status"]["token"]
    put(store, "serviceaccounts", "ns", "robot", "sa-uid", metadata={"deletionTimestamp": rfc3339(NOW)})
    assert checker.authenticate_token(token, API)
    clock.now = NOW + 62
    assert rejection(checker, token) == "service account ns/robot has been deleted"


def test_unchanged_service_account_is_not_parsed_again(store: FakeStore) -> None:
    checker = authenticator(store)
    token = ask(store)["status"]["token"]
    first = checker.authenticate_token(token, API)
    store.get("serviceaccounts", "ns", "robot").value = b"unreadable"  # type: ignore[union-attr]
    assert checker.authenticate_token(token, API) == first


def legacy(store: FakeStore) -> str:
    token = tokens.legacy_token(SIGNER, "ns", Ref("robot", "sa-uid"), "robot-token")
    data = {"token": base64.b64encode(token.encode()).decode()}
    put(store, "secrets", "ns", "robot-token", "s", data=data)
    return token


def test_legacy_token_is_valid_only_while_its_secret_matches(store: FakeStore) -> None:
    token = legacy(store)
    assert jwt.decode(token, KEY.public_key(), algorithms=["ES256"]) == {
        "iss": "kubernetes/serviceaccount",
        "kubernetes.io/serviceaccount/namespace": "ns",
        "kubernetes.io/serviceaccount/secret.name": "robot-token",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": "sa-uid",
        "sub": "system:serviceaccount:ns:robot",
    }
    checker = authenticator(store)
    found = checker.authenticate_token(token, API)
    assert found is not None
    assert (found.user.name, found.user.extra) == ("system:serviceaccount:ns:robot", {})
    assert "audiences" in rejection(checker, token, ("vault",))
    put(store, "secrets", "ns", "robot-token", "s", data={"token": "b3RoZXI="})
    assert rejection(checker, token) == "Token does not match server's copy"
    put(store, "secrets", "ns", "robot-token", "s", data={"token": "%%%"})
    assert rejection(checker, token) == "Token does not match server's copy"
    store.delete("secrets", "ns", "robot-token")
    assert rejection(checker, token) == "Token has been invalidated"


def test_legacy_token_marked_invalid_is_refused(store: FakeStore) -> None:
    token = legacy(store)
    labels = {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}
    data = {"token": base64.b64encode(token.encode()).decode()}
    put(store, "secrets", "ns", "robot-token", "s", data=data, metadata={"labels": labels})
    assert "has been marked invalid" in rejection(authenticator(store), token)
    put(store, "secrets", "ns", "robot-token", "s", data=data)
    put(store, "serviceaccounts", "ns", "robot", "new")
    assert rejection(authenticator(store), token) == "ServiceAccount UID (new) does not match claim (sa-uid)"


# ---- what is not ours ---------------------------------------------------------------------------------------------


def _decoded(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def _encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def test_malformed_or_foreign_tokens_are_not_authenticated(store: FakeStore) -> None:
    other = Signer(ec.generate_private_key(ec.SECP256R1()))
    good = ask(store)["status"]["token"]
    header, payload, signature = good.split(".")
    public_pem = KEY.public_key()
    for token in (
        "",
        "x",
        "a.b.c",
        "..",
        "é.é.é",
        f"{header}.{payload}",
        f"{header}.{payload}.",
        f"{header}.{payload}.{signature}.{signature}",
        f"{header}.{payload}.{signature}=",
        f"{_encoded({'alg': 'none'})}.{payload}.",
        f"{_encoded({'alg': 'none'})}.{payload}.{signature}",
        f"{_encoded({'alg': 'HS256', 'kid': key_id(public_pem)})}.{payload}.{signature}",
        f"{_encoded({'alg': 'ES256', 'crit': ['b64']})}.{payload}.{signature}",
        f"{_encoded({'alg': 'ES256', 'kid': 'unknown'})}.{payload}.{signature}",
        base64.urlsafe_b64encode(b"[" * 20_000).decode() + f".{payload}.{signature}",
        "a" * 100_000,
        tokens.legacy_token(other, "ns", Ref("robot", "sa-uid"), "robot-token"),
        SIGNER.sign(b'{"iss": "https://somebody.else"}'),
        SIGNER.sign(b"[" * 20_000),
        SIGNER.sign(b"{}"),
    ):
        assert authenticator(store).authenticate_token(token, API) is None, token[:80]


def test_tokens_of_additional_accepted_issuer_are_valid(store: FakeStore) -> None:
    token = ask(store, settings=TokenSettings(issuer="https://old", api_audiences=API))["status"]["token"]
    assert authenticator(store).authenticate_token(token, API) is None
    settings = TokenSettings(also_accepted=("https://old",))
    assert ServiceAccountTokens(KEYS, settings, store.get, Clock()).authenticate_token(token, API)


@given(st.data())
def test_modified_token_fails_verification(data: st.DataObject) -> None:
    token = tokens.legacy_token(SIGNER, "ns", Ref("robot", "sa-uid"), "s")
    # The last character carries unused bits: changing only those is the same token to any base64 reader.
    position = data.draw(st.integers(0, len(token) - 2))
    char = data.draw(st.characters(codec="ascii").filter(lambda c: c != token[position]))
    with pytest.raises(InvalidToken):
        KEYS.verify(token[:position] + char + token[position + 1 :])


def test_token_cache_is_bounded_and_stores_no_plaintext(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.apiserver.auth.token_authenticators._MOST_REMEMBERED", 3)
    checker = authenticator(store)
    for _ in range(5):
        token = ask(store)["status"]["token"]
        assert checker.authenticate_token(token, API)
    assert len(checker._known) == 3
    assert all(token.encode() not in key for key in checker._known)
