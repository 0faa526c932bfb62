from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.access.paths import ClusterRequest, RequestVerb, asked, judge
from remuda.kube.errors import StatusError

HERE = "/k8s/clusters/c-m-abc"


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (HERE, "/", ""),
        (f"{HERE}/", "/", ""),
        (f"{HERE}/api/v1/pods?watch=1&labelSelector=a%3Db", "/api/v1/pods", "watch=1&labelSelector=a%3Db"),
        (f"{HERE}/apis/", "/apis/", ""),
        (f"{HERE}/api/v1/namespaces/a/services/https:web:443/proxy/x%20y", None, ""),
        (f"{HERE}/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode", None, ""),
        (f"{HERE}?a=../../x", "/", "a=../../x"),
    ],
)
def test_proxied_path_and_query_are_forwarded_unchanged(target: str, path: str | None, query: str) -> None:
    expected = path if path is not None else target.removeprefix(HERE)
    assert judge("GET", target) == ClusterRequest("c-m-abc", expected, query)


@pytest.mark.parametrize(
    "rest",
    [
        *("/..", "/../../../api/v1/secrets", "/api/../v1", "/api/./v1", "/.", "/api/v1/.."),
        *("/%2e%2e/api", "/%2E%2e", "/.%2e/x", "/%2e/x", "/api/%2e%2e%2fx"),
        *("//", "//api", "/api//v1", "/api/v1//"),
        *("/a%2fb", "/a%2Fb", "/a%5cb", "/a\\b", "/a;b", "/a%3bb", "/a;x=1/b"),
        *("/a%00b", "/a%0d%0ab", "/a%7f", "/a%1fb", "/a b", "/a\tb", "/a#b", "/a%", "/a%2", "/a%zz"),
        *("/%252e%252e/x", "/a%252fb", "/ä", '/a"b', "/a<b>", "/a|b", "/a^b", "/a`b", "/{a}", "/[a]"),
        *("?a#b", "?a b", "?a\tb", "?ä"),
    ],
)
def test_ambiguous_path_is_rejected_with_400(rest: str) -> None:
    with pytest.raises(StatusError) as refused:
        judge("GET", HERE + rest)
    assert refused.value.code == 400


@pytest.mark.parametrize(
    "target",
    [
        *("http://other/k8s/clusters/c-m-abc/api", "https://x@y/k8s/clusters/c-m-abc", "*", "host:443", ""),
        *("/k8s/clusters/", "/k8s/clusters//api", "/k8s/clusters/?x", "/k8s/clusters", "//k8s/clusters/c-m-abc"),
        *("/k8s%2fclusters/c-m-abc", "/k8s/%63lusters/c-m-abc", "/K8S/clusters/c-m-abc"),
        *(
            "/k8s/clusters/..",
            "/k8s/clusters/%2e%2e/x",
            "/k8s/clusters/C-M-ABC",
            "/k8s/clusters/a.b",
            "/k8s/clusters/a_b",
        ),
        *(
            "/k8s/clusters/-a",
            "/k8s/clusters/a-",
            "/k8s/clusters/" + "a" * 64,
            "/k8s/clusters/c%2dm",
            "/k8s/clusters/a:b",
        ),
    ],
)
def test_target_without_valid_cluster_id_is_rejected_with_400(target: str) -> None:
    with pytest.raises(StatusError) as refused:
        judge("GET", target)
    assert refused.value.code == 400


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "PROPFIND", "get"])
def test_unsupported_http_method_is_rejected_with_405(method: str) -> None:
    with pytest.raises(StatusError) as refused:
        judge(method, HERE)
    assert refused.value.code == 405


_PIECES = st.sampled_from(
    [
        *"/.%;\\?#&= aZ0~:@\x00\n",
        "..",
        "%2e",
        "%2F",
        "%5c",
        "%25",
        "%00",
        "//",
        "/../",
        "k8s",
        "clusters",
        "ä",
        "%C3%A4",
    ]
)


@given(st.lists(_PIECES, max_size=12).map("".join))
def test_accepted_path_is_unambiguous_after_repeated_decoding(rest: str) -> None:
    try:
        wanted = judge("GET", f"{HERE}/{rest}")
    except StatusError:
        return
    assert f"{HERE}/{rest}" in (HERE + wanted.target, HERE + wanted.target + "?")
    path = wanted.path
    assert path.isascii()
    for decoded in (path, unquote(path), unquote(unquote(path))):
        segments = decoded.split("/")
        assert "." not in segments
        assert ".." not in segments
        assert "" not in segments[1:-1]
        assert not set(decoded) & set("\\;\x00\n\r")
    assert unquote(path).count("/") == path.count("/")


@pytest.mark.parametrize(
    ("method", "rest", "verb", "open_ended"),
    [
        ("GET", "/version", "get", False),
        ("GET", "/apis/apps/v1", "get", False),
        ("POST", "/x/y", "post", False),
        ("GET", "/api/v1/pods", "list", False),
        ("GET", "/api/v1/pods?watch=false", "list", False),
        ("GET", "/api/v1/pods?watch", "watch", True),
        ("GET", "/api/v1/namespaces/a/pods?watch=1", "watch", True),
        ("GET", "/api/v1/watch/pods", "watch", True),
        ("GET", "/apis/apps/v1/deployments?x=watch", "list", False),
        ("GET", "/api/v1/namespaces/a/pods/b", "get", False),
        ("GET", "/api/v1/namespaces/a/pods/b/log?follow=true", "get", True),
        ("POST", "/api/v1/namespaces/a/pods/b/exec", "create", True),
        ("GET", "/api/v1/nodes/b/proxy/logs", "get", True),
        ("GET", "/api/v1/namespaces/a/status", "get", False),
        ("GET", "/api/v1/namespaces/a", "get", False),
        ("POST", "/api/v1/namespaces", "create", False),
        ("PUT", "/apis/apps/v1/namespaces/a/deployments/b/scale", "update", False),
        ("PATCH", "/api/v1/nodes/b", "patch", False),
        ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection", False),
        ("DELETE", "/api/v1/namespaces/a/pods/b", "delete", False),
    ],
)
def test_request_maps_to_kubernetes_verb_and_open_endedness(
    method: str, rest: str, verb: str, open_ended: bool
) -> None:
    assert asked(method, judge(method, HERE + rest)) == RequestVerb(verb, open_ended)
