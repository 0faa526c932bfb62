from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.access import headers
from remuda.access.interfaces import Caller
from remuda.kube.errors import StatusError

_GO_ON = ["accept", "accept-encoding", "content-type", "user-agent", "kubectl-session", "x-stream-protocol-version"]
_STAY = [
    *("authorization", "cookie", "forwarded", "via", "host", "content-length", "transfer-encoding", "te", "trailer"),
    *("x-forwarded-for", "x-forwarded-proto", "x-remote-user", "x-remote-group", "x-remote-extra-scopes", "upgrade"),
    *("connection", "keep-alive", "proxy-authorization", "proxy-connection", "expect", "audit-id", "http2-settings"),
]


@given(st.lists(st.tuples(st.sampled_from(_GO_ON + _STAY), st.text("ab, -", max_size=8)), max_size=12))
def test_request_headers_are_forwarded_without_hop_by_hop_and_credential_headers(found: list[tuple[str, str]]) -> None:
    named = {token.strip() for name, value in found if name == "connection" for token in value.split(",")}
    kept = headers.onward(found)
    assert kept == [(name, value) for name, value in found if name in _GO_ON and name not in named]


@pytest.mark.parametrize("names", ["user-agent", "X-Custom , user-agent", "close, User-Agent"])
def test_headers_named_in_connection_header_are_not_forwarded(names: str) -> None:
    found = [("connection", names), ("user-agent", "kubectl"), ("accept", "*/*")]
    assert headers.onward(found) == [("accept", "*/*")]


@pytest.mark.parametrize("name", ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-x"])
def test_impersonation_headers_are_rejected_with_403(name: str) -> None:
    with pytest.raises(StatusError) as refused:
        headers.onward([("accept", "*/*"), (name, "system:admin")])
    assert refused.value.code == 403
    assert "Impersonate-*" in refused.value.message


@pytest.mark.parametrize(("name", "value"), [("x", "a\r\nimpersonate-user: b"), ("x", "a\0b"), ("x y", "a"), ("", "a")])
def test_invalid_header_name_or_value_is_rejected_with_400(name: str, value: str) -> None:
    with pytest.raises(StatusError) as refused:
        headers.onward([(name, value)])
    assert refused.value.code == 400


def test_bearer_token_in_websocket_subprotocols_is_not_forwarded() -> None:
    token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    assert headers.onward([("sec-websocket-protocol", f"v5.channel.k8s.io, {token},v4.channel.k8s.io")]) == [
        ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io")
    ]
    assert headers.onward([("sec-websocket-protocol", token)]) == []


def test_impersonation_headers_carry_full_caller_and_system_authenticated() -> None:
    caller = Caller(name="ann", uid="u-1", groups=("riders",), extra={"scopes/x": ("a", "b")})
    assert headers.caller_headers(caller) == [
        ("Impersonate-User", "ann"),
        ("Impersonate-Uid", "u-1"),
        ("Impersonate-Group", "riders"),
        ("Impersonate-Group", "system:authenticated"),
        ("Impersonate-Extra-scopes%2Fx", "a"),
        ("Impersonate-Extra-scopes%2Fx", "b"),
    ]
    said = headers.caller_headers(Caller(name="bo", groups=("system:authenticated",)))
    assert said == [("Impersonate-User", "bo"), ("Impersonate-Group", "system:authenticated")]


@pytest.mark.parametrize(
    ("caller", "code"),
    [
        (Caller(name=""), 401),
        (Caller(name=" "), 403),
        (Caller(name="ann\r\nImpersonate-Group: system:masters"), 403),
        (Caller(name="ann", groups=("a\nb",)), 403),
        (Caller(name="ann", groups=("",)), 403),
        (Caller(name="ann", extra={"k": ("\0",)}), 403),
    ],
)
def test_empty_or_invalid_caller_identity_is_not_impersonated(caller: Caller, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        headers.caller_headers(caller)
    assert refused.value.code == code


def test_response_headers_drop_hop_by_hop_cookies_and_invalid_values() -> None:
    found = [
        *(("Content-Type", "application/json"), ("Content-Encoding", "gzip"), ("Warning", '299 - "a"')),
        *(("Set-Cookie", "a=b"), ("Connection", "X-Hop"), ("X-Hop", "1"), ("Transfer-Encoding", "chunked")),
        *(("Content-Length", "3"), ("Date", "today"), ("Audit-Id", "theirs"), ("X-Bad", "a\nb")),
    ]
    assert headers.back(found) == found[:3]
