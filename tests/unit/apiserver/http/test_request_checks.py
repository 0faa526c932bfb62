"""What is built in is routed strictly; what definitions bring is not."""

from __future__ import annotations

import pytest

from remuda.apiserver.http.negotiate import require_get, require_named
from remuda.kube.errors import StatusError
from remuda.kube.web import Request


def request(method: str = "GET", accept: bytes = b"") -> Request:
    return Request(None, method, "/version", {b"accept": accept} if accept else {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "accept", [b"", b"*/*", b"text/html, application/json;q=0.1", b"application/yaml", b"a/b,*/*;q=0"]
)
def test_exact_or_full_wildcard_accept_header_is_accepted(accept: bytes) -> None:
    require_named(request(accept=accept))


@pytest.mark.parametrize("accept", [b"application/*", b"text/html", b"*", b"nonsense", b","])
def test_unsupported_accept_header_returns_406(accept: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        require_named(request(accept=accept))
    assert caught.value.code == 406
    assert caught.value.status()["details"] == {}
    assert caught.value.message.endswith("Available representations: application/json, application/yaml")


@pytest.mark.parametrize("method", ["HEAD", "POST", "OPTIONS", "PROPFIND"])
def test_non_get_method_returns_405(method: str) -> None:
    with pytest.raises(StatusError) as caught:
        require_get(request(method))
    assert (caught.value.code, caught.value.status()["details"]) == (405, {})


def test_route_may_restrict_its_media_types() -> None:
    require_get(request(accept=b"application/json"), ("application/json",))
    with pytest.raises(StatusError):
        require_get(request(accept=b"application/yaml"), ("application/json",))
