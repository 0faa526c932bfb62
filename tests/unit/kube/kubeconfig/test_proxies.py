"""Proxies of the environment."""

from __future__ import annotations

import pytest

from remuda.kube.kubeconfig.loader import proxy_of_environment


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        ("https://a.example", {}, ""),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.example", {"https_proxy": "p:1", "HTTPS_PROXY": "http://other"}, "http://p:1"),
        ("http://a.example", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://localhost", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://[::1]", {"HTTPS_PROXY": "http://p:1"}, ""),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, ""),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b, .example"}, ""),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*.example"}, ""),
        ("https://a.example", {"HTTPS_PROXY": "http://p:1", "no_proxy": "a.example"}, ""),
        ("https://xa.example", {"HTTPS_PROXY": "http://p:1", "no_proxy": "a.example"}, "http://p:1"),
        ("https://10.1.2.3", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, ""),
        ("https://11.1.2.3", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
    ],
)
def test_proxy_environment_variables_are_read_as_kubectl_does(
    server: str, environ: dict[str, str], expected: str
) -> None:
    assert proxy_of_environment(server, environ) == expected
