from __future__ import annotations

from typing import Any, cast

import pytest

from remuda.apiserver.http.routes import request_info
from remuda.kube.web import Request


def info_of(method: str, target: str) -> Any:
    return request_info(Request(cast(Any, None), method, target, {}))


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        # verb, group, version, namespace, resource, name, subresource
        ("GET", "/api/v1/namespaces", ("list", "", "v1", "", "namespaces", "", "")),
        ("GET", "/api/v1/namespaces/other", ("get", "", "v1", "other", "namespaces", "other", "")),
        ("GET", "/api/v1/namespaces/other/pods", ("list", "", "v1", "other", "pods", "", "")),
        ("GET", "/api/v1/namespaces/other/pods/foo", ("get", "", "v1", "other", "pods", "foo", "")),
        ("HEAD", "/api/v1/namespaces/other/pods/foo", ("get", "", "v1", "other", "pods", "foo", "")),
        ("GET", "/api/v1/pods", ("list", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/pods?watch=true", ("watch", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/pods?watch", ("watch", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/pods?watch=0", ("list", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/pods?watch=False", ("list", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/watch/pods", ("watch", "", "v1", "", "pods", "", "")),
        ("GET", "/api/v1/watch/namespaces/other/pods/foo", ("watch", "", "v1", "other", "pods", "foo", "")),
        ("GET", "/api/v1/namespaces/other/status", ("get", "", "v1", "other", "namespaces", "other", "status")),
        ("PUT", "/api/v1/namespaces/other/finalize", ("update", "", "v1", "other", "namespaces", "other", "finalize")),
        ("GET", "/api/v1/namespaces/other/pods/foo/log", ("get", "", "v1", "other", "pods", "foo", "log")),
        ("GET", "/apis/x.io/v1/namespaces/other/foos/a", ("get", "x.io", "v1", "other", "foos", "a", "")),
        ("POST", "/apis/x.io/v1/foos", ("create", "x.io", "v1", "", "foos", "", "")),
        ("PATCH", "/apis/x.io/v1/foos/a/status", ("patch", "x.io", "v1", "", "foos", "a", "status")),
        ("DELETE", "/apis/x.io/v1/foos", ("deletecollection", "x.io", "v1", "", "foos", "", "")),
        ("DELETE", "/apis/x.io/v1/foos/a", ("delete", "x.io", "v1", "", "foos", "a", "")),
        ("DELETE", "/api/v1/namespaces/a", ("delete", "", "v1", "a", "namespaces", "a", "")),
        ("GET", "/api/v1/namespaces/a%2Fb", ("list", "", "v1", "a", "b", "", "")),
    ],
)
def test_resource_path_is_parsed_into_request_info(method: str, target: str, expected: tuple[str, ...]) -> None:
    info = info_of(method, target)
    found = (info.verb, info.group, info.version, info.namespace, info.resource, info.name, info.subresource)
    assert info.is_resource
    assert found == expected


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis", "/apis/x.io", "/apis/x.io/v1", "/healthz", "/a/b/c/d"]
)
def test_non_resource_path_is_parsed_into_request_info(path: str) -> None:
    info = info_of("GET", path)
    assert (info.is_resource, info.verb, info.path) == (False, "get", path)


def test_path_after_subresource_is_kept() -> None:
    assert info_of("GET", "/api/v1/namespaces/n/pods/p/proxy/a/b").rest == "a/b"
