from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from remuda.agent.images import ImageError
from remuda.agent.images.credentials import Plugins, RegistryCredentials, from_auth, from_docker, matches
from remuda.agent.images.references import parse
from remuda.agent.images.registries import Registries, below, read
from remuda.agent.images.web import proxy_for


def asked(document: Any, reference: str) -> list[tuple[str, str, str]]:
    endpoints = Registries(document).endpoints(parse(reference))
    return [(endpoint.base, endpoint.repository, endpoint.namespace) for endpoint in endpoints]


def test_registry_itself_is_the_default_endpoint() -> None:
    assert asked(None, "busybox") == [("https://registry-1.docker.io/v2", "library/busybox", "")]
    assert asked({}, "example.com:5000/a/b:1") == [("https://example.com:5000/v2", "a/b", "")]


def test_mirrors_are_tried_first_in_configured_order() -> None:
    mirrors = {
        "docker.io": {"endpoint": ["https://a.example.com", "http://b.example.com:5000/hub/", "c.example.com/v2"]}
    }
    assert asked({"mirrors": mirrors}, "rancher/x:1") == [
        ("https://a.example.com/v2", "rancher/x", "docker.io"),
        ("http://b.example.com:5000/hub", "rancher/x", "docker.io"),
        ("https://c.example.com/v2", "rancher/x", "docker.io"),
        ("https://registry-1.docker.io/v2", "rancher/x", ""),
    ]


@pytest.mark.parametrize("key", ["example.com", "example.com:443", "example.com:80", "*"])
def test_mirror_key_matches_registry_with_default_port_or_wildcard(key: str) -> None:
    document = {"mirrors": {key: {"endpoint": ["https://m.example.com"]}}}
    assert asked(document, "example.com/a:1")[0] == ("https://m.example.com/v2", "a", "example.com")


def test_exact_mirror_key_takes_precedence_over_wildcard() -> None:
    document = {"mirrors": {"*": {"endpoint": ["https://star"]}, "example.com": {"endpoint": ["https://named"]}}}
    assert [base for base, _, _ in asked(document, "example.com/a")] == ["https://named/v2", "https://example.com/v2"]
    assert [base for base, _, _ in asked(document, "example.com:5000/a")] == [
        "https://star/v2",
        "https://example.com:5000/v2",
    ]


@pytest.mark.parametrize(
    ("rewrites", "expected"),
    [
        ({"^rancher/(.*)": "mirrored/$1"}, "mirrored/k3s"),
        ({"nothing": "x", "^(?P<org>\\w+)/": "hub-${org}/"}, "hub-rancher/k3s"),
        ({"^rancher/": "a/", "rancher": "b"}, "a/k3s"),
        ({"(k)3s": "${1}$$"}, None),
        ({"k3s$": "$9x"}, None),
    ],
)
def test_rewrites_are_for_mirrors_only(rewrites: dict[str, str], expected: str | None) -> None:
    document = {
        "mirrors": {
            "docker.io": {"endpoint": ["https://m.example.com", "https://registry-1.docker.io"], "rewrite": rewrites}
        }
    }
    if expected is None:
        with pytest.raises(ImageError, match="which is not a repository"):
            asked(document, "rancher/k3s")
        return
    assert [repository for _, repository, _ in asked(document, "rancher/k3s")] == [expected, "rancher/k3s"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "is not a mapping"),
        ({"mirrors": []}, "mirrors is not a mapping"),
        ({"mirrors": {"docker.io": {"endpoint": "https://x"}}}, r"mirrors\[docker.io\].endpoint is not a list"),
        ({"mirrors": {"docker.io": {"endpoint": ["ftp://x"]}}}, "not a registry address"),
        ({"mirrors": {"docker.io": {"endpoint": ["https://user:secret@x"]}}}, "not a registry address"),
        ({"mirrors": {"docker.io": {"endpoint": ["https://x"], "rewrite": {"(": "x"}}}}, "not a regular expression"),
    ],
)
def test_invalid_registries_file_raises_image_error_with_reason(document: Any, said: str) -> None:
    with pytest.raises(ImageError, match=said):
        asked(document, "busybox")


def test_agent_registries_file_takes_precedence_over_distribution_file(tmp_path: Path) -> None:
    root = tmp_path / "root"
    theirs = root / "etc/rancher/k3s/registries.yaml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('mirrors: {"*": {endpoint: ["https://theirs"]}}')
    own = "/etc/rancher/agent/registries.yaml"
    assert read(own, str(root)).endpoints(parse("a"))[0].host == "theirs"
    Path(below(own, str(root))).parent.mkdir(parents=True)
    Path(below(own, str(root))).write_text('mirrors: {"*": {endpoint: ["https://own"]}}')
    assert read(own, str(root)).endpoints(parse("a"))[0].host == "own"
    Path(below(own, str(root))).write_text("a: [")
    with pytest.raises(ImageError, match=r"agent/registries.yaml could not be read: line 1"):
        read(own, str(root))


def test_incomplete_or_missing_tls_files_are_rejected(tmp_path: Path) -> None:
    known = Registries(
        {"configs": {"x": {"tls": {"cert_file": "/a"}}, "y": {"tls": {"ca_file": str(tmp_path / "none")}}}}
    )
    with pytest.raises(ImageError, match="only one of cert_file and key_file"):
        known.context("x")
    with pytest.raises(ImageError, match=r"configs\[y\].tls could not be used"):
        known.context("y")


def test_credentials_are_looked_up_by_endpoint_host() -> None:
    known = Registries(
        {
            "configs": {
                "a.example.com:5000": {"auth": {"username": "u", "password": 123}},
                "docker.io": {"auth": {"auth": "aHViOnA6dw=="}},
                "t.example.com": {"auth": {"identity_token": "t"}},
                "empty": {"auth": None},
            }
        }
    )
    assert known.credentials("a.example.com:5000") == RegistryCredentials("u", "123")
    assert known.credentials("registry-1.docker.io") == RegistryCredentials("hub", "p:w")
    assert known.credentials("t.example.com") == RegistryCredentials("", "", "t")
    assert known.credentials("empty") is None
    assert known.credentials("a.example.com") is None
    assert "123" not in repr(known.credentials("a.example.com:5000"))


def test_invalid_auth_error_does_not_leak_the_value() -> None:
    with pytest.raises(ImageError) as caught:
        from_auth({"auth": "%%secret%%"})
    assert "secret" not in str(caught.value)


def test_credentials_are_read_from_docker_config(tmp_path: Path) -> None:
    auths = {"https://index.docker.io/v1/": {"auth": "aHViOnB3"}, "example.com": {"username": "u", "password": "p"}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    environment = {"DOCKER_CONFIG": str(tmp_path)}
    assert from_docker("registry-1.docker.io", environment) == RegistryCredentials("hub", "pw")
    assert from_docker("example.com", environment) == RegistryCredentials("u", "p")
    assert from_docker("other.example.com", environment) is None
    assert from_docker("example.com", {"HOME": str(tmp_path / "nowhere")}) is None


@pytest.mark.parametrize(
    ("pattern", "image", "expected"),
    [
        ("example.com", "example.com/a", True),
        ("*.example.com", "a.example.com/x", True),
        ("*.example.com", "example.com/x", False),
        ("*.example.com", "a.b.example.com/x", False),
        ("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.eu-west-1.amazonaws.com/x", True),
        ("example.com:5000", "example.com/x", False),
        ("example.com:5000", "example.com:5000/x", True),
        ("example.com/team", "example.com/team/x", True),
        ("example.com/team", "example.com/other/x", False),
        ("https://example.com/team", "example.com/team/x", True),
    ],
)
def test_match_images_patterns_follow_kubelet_rules(pattern: str, image: str, expected: bool) -> None:
    assert matches(pattern, image) is expected


def _plugin(folder: Path, script: str) -> Plugins:
    (folder / "bin").mkdir()
    (folder / "bin" / "helper").write_text(f"#!/bin/sh\n{script}\n")
    os.chmod(folder / "bin" / "helper", 0o755)
    (folder / "config.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
        "- name: helper\n  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  matchImages: ['*.example.com']\n"
        "  defaultCacheDuration: 1h\n  args: [get]\n  env: [{name: WHO, value: me}]\n"
    )
    return Plugins(str(folder / "config.yaml"), str(folder / "bin"))


def test_credential_provider_plugin_gets_kubelet_request(tmp_path: Path) -> None:
    plugins = _plugin(
        tmp_path,
        f'cat > {tmp_path}/asked; echo "$@" > {tmp_path}/arguments; '
        'echo \'{"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", '
        '"auth": {"*.example.com": {"username": "any", "password": "x"}, '
        '"a.example.com": {"username": "\'$WHO\'", "password": "secret"}}}\'',
    )
    assert plugins.credentials("a.example.com/repo") == RegistryCredentials("me", "secret")
    assert json.loads((tmp_path / "asked").read_text()) == {
        "kind": "CredentialProviderRequest",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "image": "a.example.com/repo",
    }
    assert (tmp_path / "arguments").read_text() == "get\n"
    assert plugins.credentials("elsewhere.org/repo") is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo secret; exit 3", "ended with code 3"),
        ("echo secret", "did not answer in JSON"),
        ('echo \'{"kind": "Other"}\'', "did not answer with a CredentialProviderResponse"),
    ],
)
def test_failed_credential_plugin_is_named_without_its_output(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(ImageError, match=f"helper {said}") as caught:
        _plugin(tmp_path, script).credentials("a.example.com/x")
    assert "secret" not in str(caught.value)


def test_credential_plugin_name_must_not_be_a_path(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "providers: [{name: ../../bin/sh, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [x.org]}]"
    )
    with pytest.raises(ImageError, match="is not the name of a program"):
        Plugins(str(tmp_path / "config.yaml"), str(tmp_path)).credentials("x.org/a")
    assert Plugins(str(tmp_path / "none.yaml"), str(tmp_path)).credentials("x.org/a") is None


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("example.com", "", True),
        ("example.com", "other.org", True),
        ("example.com", "example.com", False),
        ("a.example.com", "example.com", False),
        ("notexample.com", "example.com", True),
        ("example.com", ".example.com", True),
        ("a.example.com", "*.example.com, x", False),
        ("example.com", "*", False),
        ("example.com", "example.com:443", False),
        ("example.com", "example.com:5000", True),
        ("10.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", False),
        ("11.1.2.3", "10.0.0.0/8", True),
        ("fd00::1", "fd00::/8", False),
        ("localhost", "", False),
        ("127.0.0.5", "", False),
    ],
)
def test_proxy_selection_follows_go_no_proxy_rules(host: str, no_proxy: str, expected: bool) -> None:
    environment = {"HTTPS_PROXY": "http://user:pw@proxy.example.org:3128", "NO_PROXY": no_proxy}
    proxy = proxy_for("https", host, 443, environment)
    assert proxy == (urlsplit("http://user:pw@proxy.example.org:3128") if expected else None)
    assert proxy_for("http", host, 443, environment) is None


def test_unsupported_proxy_error_does_not_leak_credentials() -> None:
    with pytest.raises(ImageError, match="HTTPS_PROXY") as caught:
        proxy_for("https", "example.com", 443, {"https_proxy": "socks5://user:secret@x"})
    assert "secret" not in str(caught.value)
