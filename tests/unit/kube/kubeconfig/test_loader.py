"""Kubeconfigs as people and programs write them."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube import kubeconfig
from remuda.kube.kubeconfig import KubeconfigError
from remuda.kube.kubeconfig.access import ClientConfig

Json = dict[str, Any]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(cluster: Json | None = None, user: Json | None = None, context: Json | None = None) -> Json:
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://c:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **(context or {})}}],
        "current-context": "x",
    }


def put(path: Path, content: Json | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def load(tmp_path: Path, content: Json | str, context: str = "") -> ClientConfig:
    return kubeconfig.load(put(tmp_path / "config", content), context, environ={})


def refusal(tmp_path: Path, content: Json | str, context: str = "") -> str:
    with pytest.raises(KubeconfigError) as caught:
        load(tmp_path, content, context)
    assert str(tmp_path / "config") in str(caught.value)
    return str(caught.value)


def test_written_kubeconfig_is_loaded_back(tmp_path: Path) -> None:
    kubeconfig.write(
        tmp_path / "k",
        kubeconfig.build("https://h:1/", ca_pem=b"CA", client_certificate_pem=b"C", client_key_pem=b"K", namespace="n"),
    )
    access = kubeconfig.load(tmp_path / "k", environ={})
    assert (access.server, access.ca, access.namespace) == ("https://h:1", b"CA", "n")
    assert (access.client_certificate, access.client_key, access.method) == (b"C", b"K", "certificate")


@given(st.text(max_size=60), st.binary(max_size=60))
def test_garbage_kubeconfig_raises_kubeconfig_error(text: str, data: bytes) -> None:
    for garbage in (text.encode(), data):
        with pytest.raises(KubeconfigError, match="the Secret"):
            kubeconfig.parse(garbage, origin="the Secret")


@pytest.mark.parametrize(
    "hostile",
    [
        b"[" * 1_000_000,
        b"a: {" * 1_000,
        b"a: 2020-13-45",
        b"a: &a [1]\nb: [" + b"*a, " * 100 + b"]",
        b"a0: &a0 {k: v}\n" + b"".join(b"a%d: &a%d {<<: [*a%d, *a%d]}\n" % (n, n, n - 1, n - 1) for n in range(1, 31)),
        b"!!python/object/apply:os.system [ls]",
        b"- a",
        b"\xc3\x28",
    ],
)
def test_hostile_kubeconfig_yaml_is_rejected(hostile: bytes) -> None:
    with pytest.raises(KubeconfigError, match="the Secret is"):
        kubeconfig.parse(hostile, origin="the Secret")


class TestWhichFile:
    def test_first_definition_in_kubeconfig_files_takes_precedence(self, tmp_path: Path) -> None:
        first = put(tmp_path / "1", {**config(), "users": [], "current-context": ""})
        second = put(tmp_path / "2", {**config({"server": "https://other"}, {"token": "t"}), "current-context": "x"})
        environ = {"KUBECONFIG": f"{first}::{tmp_path / 'missing'}:{second}:{first}"}
        access = kubeconfig.load(environ=environ)
        assert (access.server, access.token) == ("https://c:6443", "t")
        assert access.origin == f"{first}, {second} (context 'x')"

    def test_kubeconfig_is_loaded_from_home_directory(self, tmp_path: Path) -> None:
        put(tmp_path / ".kube" / "config", config(user={"token": "mine"}))
        assert kubeconfig.load(environ={"HOME": str(tmp_path)}).token == "mine"

    def test_in_cluster_config_is_used_without_kubeconfig_files(self, tmp_path: Path) -> None:
        environ = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        with pytest.raises(KubeconfigError, match="the Pod has no service account token"):
            kubeconfig.load(environ=environ)

    def test_missing_kubeconfig_error_lists_searched_paths(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match=r"looked for .*/\.kube/config, because KUBECONFIG is not set"):
            kubeconfig.load(environ={"HOME": str(tmp_path)})
        with pytest.raises(KubeconfigError, match="looked for /a and /b"):
            kubeconfig.load(environ={"KUBECONFIG": "/a:/b"})
        with pytest.raises(KubeconfigError, match="the kubeconfig /a does not exist"):
            kubeconfig.load(Path("/a"))

    def test_null_kubeconfig_lists_are_read_as_empty(self, tmp_path: Path) -> None:
        nothing = "apiVersion: v1\nclusters: null\ncontexts: null\ncurrent-context: ''\nkind: Config\nusers: null\n"
        assert "has no current-context; its contexts are: none" in refusal(tmp_path, nothing)


class TestContext:
    def test_named_context_overrides_current_context(self, tmp_path: Path) -> None:
        both = config()
        both["contexts"].append({"name": "y", "context": {"cluster": "d"}})
        both["clusters"].append({"name": "d", "cluster": {"server": "https://d"}})
        access = load(tmp_path, both, "y")
        assert (access.server, access.method) == ("https://d", "anonymous")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"current-context": "nope"}, "has no context 'nope'; it has: x"),
            ({"current-context": ""}, "has no current-context; its contexts are: x"),
            ({"clusters": []}, "(context 'x') refers to the cluster 'c', which is not defined"),
            ({"users": []}, "(context 'x') refers to the user 'u', which is not defined"),
            ({"users": 5}, "is not a valid kubeconfig: Expected `array | null`, got `int` - at `$.users`"),
        ],
    )
    def test_missing_context_cluster_or_user_is_named_in_error(self, tmp_path: Path, change: Json, said: str) -> None:
        assert said in refusal(tmp_path, {**config(), **change})

    def test_broken_kubeconfig_yaml_error_names_line_without_content(self, tmp_path: Path) -> None:
        said = refusal(tmp_path, "users:\n- name: a\n  token: 'secret\n")
        assert "is not valid YAML (line 4)" in said
        assert "secret" not in said


class TestServer:
    @pytest.mark.parametrize("server", ["", "c:6443", "ftp://c", "https://", "https://c:port", "/path"])
    def test_server_must_be_a_valid_http_url(self, tmp_path: Path, server: str) -> None:
        assert "cluster 'c'" in refusal(tmp_path, config({"server": server}))

    def test_server_url_may_have_a_path(self, tmp_path: Path) -> None:
        assert load(tmp_path, config({"server": "https://c/k8s/clusters/a/"})).server == "https://c/k8s/clusters/a"

    def test_server_is_verified_unless_insecure_skip_tls_verify_is_set(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert not load(tmp_path, config()).insecure
        assert not caplog.records
        assert load(tmp_path, config({"insecure-skip-tls-verify": True})).insecure
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        both = config({"insecure-skip-tls-verify": True, "certificate-authority-data": encoded("CA")})
        assert "cannot both be set" in refusal(tmp_path, both)

    def test_tls_server_name_and_proxy_url_are_read_and_socks_rejected(self, tmp_path: Path) -> None:
        access = load(tmp_path, config({"tls-server-name": "real", "proxy-url": "http://me:pw@p:3128"}))
        assert (access.tls_server_name, access.proxy_url) == ("real", "http://me:pw@p:3128")
        said = refusal(tmp_path, config({"proxy-url": "socks5://me:pw@p"}))
        assert "not supported: socks5://p" in said
        assert "pw" not in said


class TestUser:
    def test_relative_paths_are_resolved_against_kubeconfig_directory(self, tmp_path: Path) -> None:
        put(tmp_path / "pki" / "ca.crt", "CA")
        put(tmp_path / "token", "t")
        found = load(tmp_path, config({"certificate-authority": "pki/ca.crt"}, {"tokenFile": "token"}))
        assert (found.ca, found.token_file) == (tmp_path / "pki" / "ca.crt", tmp_path / "token")

    def test_inline_data_takes_precedence_over_file(self, tmp_path: Path) -> None:
        assert (
            load(tmp_path, config({"certificate-authority": "nowhere", "certificate-authority-data": encoded("CA")})).ca
            == b"CA"
        )

    @pytest.mark.parametrize(
        ("user", "said"),
        [
            ({"client-certificate-data": encoded("C")}, "client-key is missing"),
            ({"client-key-data": encoded("K")}, "client-certificate is missing"),
            ({"client-key-data": "***"}, "client-key-data is not base64"),
            ({"tokenFile": "gone"}, "gone, which is not a file"),
            ({"token": "t", "username": "me", "password": "pw"}, "token and password are both set"),
            ({"auth-provider": {"name": "oidc"}}, "auth-provider 'oidc' was removed"),
            ({"as-groups": ["g"]}, "need a user to impersonate"),
            (
                {"exec": {"command": "p", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
                "is not supported; use client.authentication.k8s.io/v1 or ",
            ),
            ({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}, "has no command"),
            (
                {
                    "exec": {
                        "command": "p",
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "interactiveMode": "Always",
                    }
                },
                "requires a terminal",
            ),
            (
                {
                    "exec": {
                        "command": "p",
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "env": [{"name": "A=B", "value": "c"}],
                    }
                },
                "not a valid name of an environment variable",
            ),
        ],
    )
    def test_unusable_user_credentials_error_names_user_and_hides_password(
        self, tmp_path: Path, user: Json, said: str
    ) -> None:
        found = refusal(tmp_path, config(user=user))
        assert said in found
        assert "user 'u'" in found
        assert "pw" not in found

    def test_impersonation_fields_are_read(self, tmp_path: Path) -> None:
        user = {"token": "t", "as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"k": ["v"]}}
        found = load(tmp_path, config(user=user)).impersonate
        assert (found.user, found.uid, found.groups, found.extra) == ("jane", "7", ("a", "b"), {"k": ("v",)})

    def test_access_representation_hides_token(self, tmp_path: Path) -> None:
        access = load(tmp_path, config(user={"token": "hush-hush"}))
        assert "hush-hush" not in f"{access} {access!r}"
        assert "by token" in str(access)


class TestExec:
    PLUGIN: ClassVar[Json] = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "bin/login",
        "args": ["--now"],
        "env": [{"name": "REGION", "value": "eu"}],
        "installHint": "get it",
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
    }

    def test_exec_config_is_read_with_cluster_info(self, tmp_path: Path) -> None:
        extension = [
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
            {"name": "other", "extension": 1},
        ]
        cluster = {"certificate-authority-data": encoded("CA"), "extensions": extension, "tls-server-name": "real"}
        plugin = load(tmp_path, config(cluster, {"exec": self.PLUGIN})).exec
        assert plugin is not None
        assert (plugin.command, plugin.args, plugin.env) == (str(tmp_path / "bin/login"), ("--now",), {"REGION": "eu"})
        assert plugin.install_hint == "get it"
        assert plugin.cluster_info == {
            "server": "https://c:6443",
            "certificate-authority-data": encoded("CA"),
            "tls-server-name": "real",
            "config": {"audience": "a"},
        }

    def test_exec_command_without_slash_is_resolved_by_path(self, tmp_path: Path) -> None:
        plugin = load(tmp_path, config(user={"exec": {**self.PLUGIN, "command": "aws"}})).exec
        assert plugin is not None
        assert plugin.command == "aws"

    def test_token_takes_precedence_over_exec_plugin(self, tmp_path: Path) -> None:
        assert load(tmp_path, config(user={"token": "t", "exec": self.PLUGIN})).method == "token"


class TestFromElsewhere:
    """A kubeconfig out of a Secret is not trusted with this machine."""

    @pytest.mark.parametrize(
        ("cluster", "user", "said"),
        [
            ({}, {"exec": TestExec.PLUGIN}, "may not run a program"),
            ({}, {"tokenFile": "/etc/hostname"}, "may not refer to local files"),
            (
                {},
                {"client-certificate": "/etc/hostname", "client-key": "/etc/hostname"},
                "may not refer to local files",
            ),
            ({"certificate-authority": "/etc/hostname"}, {}, "may not refer to local files"),
        ],
    )
    def test_kubeconfig_from_secret_may_not_use_exec_or_files(self, cluster: Json, user: Json, said: str) -> None:
        text = yaml.safe_dump(config(cluster, user)).encode()
        with pytest.raises(KubeconfigError, match=said) as caught:
            kubeconfig.parse(text, origin="Secret a/b-kubeconfig", environ={})
        assert "in Secret a/b-kubeconfig (context 'x')" in str(caught.value)
        kubeconfig.parse(text, allow_exec=True, environ={})

    def test_kubeconfig_from_secret_uses_inline_credentials(self) -> None:
        access = kubeconfig.parse(yaml.safe_dump(config(user={"token": "t"})).encode(), environ={})
        assert (access.server, access.token) == ("https://c:6443", "t")


class TestInCluster:
    ENVIRON: ClassVar = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}

    def test_in_cluster_config_reads_address_files_and_namespace(self, tmp_path: Path) -> None:
        for name, content in (("token", "t"), ("ca.crt", "CA"), ("namespace", "ns\n")):
            put(tmp_path / name, content)
        access = kubeconfig.in_cluster(tmp_path, environ=self.ENVIRON)
        assert (access.server, access.namespace) == ("https://[fd00::1]:443", "ns")
        assert (access.token_file, access.ca) == (tmp_path / "token", tmp_path / "ca.crt")

    def test_in_cluster_config_outside_cluster_is_rejected(self, tmp_path: Path) -> None:
        with pytest.raises(KubeconfigError, match="not inside a cluster"):
            kubeconfig.in_cluster(tmp_path, environ={})
