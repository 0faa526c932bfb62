"""Images from a real registry: over TLS by an authority of its own, with a password or a token, through mirrors."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from remuda.agent.images import ImageError, stage
from remuda.agent.images.platforms import this_host
from tests.lab.certificates import Authority, write
from tests.lab.images import Image, Settings, digest, entry, index, tar
from tests.lab.registry import RealRegistry, require_registry

IMAGE = Image(
    [
        tar(entry("run.sh", b"#!/bin/sh\necho old\n", 0o755), entry("gone", b"x")),
        tar(
            entry("run.sh", b"#!/bin/sh\necho new\n", 0o755),
            entry(".wh.gone"),
            entry("data", bytes(range(256)) * 20_000),
        ),
    ],
    architecture=this_host().architecture,
)
OTHER = Image([tar(entry("run.sh", b"of another architecture"))], architecture="mips")


@pytest.fixture(scope="module")
def registry() -> Iterator[RealRegistry]:
    server = RealRegistry()
    server.push("team/installer", IMAGE, "v1")
    server.push("mirrored/installer", IMAGE, "v1")
    server.push("team/installer", OTHER)
    server.push_manifest("team/installer", BOTH, "multi", media_type="application/vnd.oci.image.index.v1+json")
    yield server
    server.stop()


BOTH = index({"linux/mips": OTHER, str(this_host()): IMAGE})


@pytest.fixture
def settings(tmp_path: Path, registry: RealRegistry) -> Settings:
    (tmp_path / "registries.yaml").write_text(registry.access())
    return Settings(tmp_path)


def staged(reference: str, settings: Settings) -> dict[str, int]:
    target = settings.folder / "work" / "0"
    stage(reference, str(target), settings)
    assert (target / "run.sh").read_text() == "#!/bin/sh\necho new\n"
    return {path.name: path.stat().st_size for path in target.iterdir()}


EXPECTED = {"run.sh": 19, "data": 5_120_000}


@pytest.mark.parametrize("name", [":v1", f"@{IMAGE.digest}", f":v0@{IMAGE.digest}", ":multi", f"@{digest(BOTH)}"])
def test_image_is_pulled_by_tag_digest_and_index(registry: RealRegistry, settings: Settings, name: str) -> None:
    assert staged(f"{registry.host}/team/installer{name}", settings) == EXPECTED


def test_mirror_with_rewrite_replaces_unreachable_registry(registry: RealRegistry, settings: Settings) -> None:
    (settings.folder / "registries.yaml").write_text(
        registry.access(
            mirror_of="registry.invalid", rewrite={"^far/away/(.*)$": "mirrored/$1"}, before=("http://127.0.0.1:1",)
        )
    )
    assert staged("registry.invalid/far/away/installer:v1", settings) == EXPECTED
    assert "/v2/mirrored/installer/manifests/v1?ns=registry.invalid" in registry.said


def test_image_missing_from_mirror_is_pulled_from_registry(registry: RealRegistry, settings: Settings) -> None:
    document = json.loads(registry.access())
    document["mirrors"] = {
        registry.host: {
            "endpoint": [f"https://localhost:{registry.host.split(':')[1]}"],
            "rewrite": {"team": "nothing"},
        }
    }
    document["configs"][f"localhost:{registry.host.split(':')[1]}"] = document["configs"][registry.host]
    (settings.folder / "registries.yaml").write_text(json.dumps(document))
    assert staged(f"{registry.host}/team/installer:v1", settings) == EXPECTED
    assert "/v2/nothing/installer/manifests/v1" in registry.said


def refused(reference: str, settings: Settings, document: dict[str, Any]) -> str:
    (settings.folder / "registries.yaml").write_text(json.dumps(document))
    with pytest.raises(ImageError) as caught:
        stage(reference, str(settings.folder / "work" / "0"), settings)
    assert list((settings.folder / "work").iterdir()) == []
    return str(caught.value)


def test_registry_errors_are_reported_without_password(registry: RealRegistry, settings: Settings) -> None:
    name, known = f"{registry.host}/team/installer:v1", json.loads(registry.access())
    config = known["configs"][registry.host]
    assert "the certificate of" in refused(name, settings, {"configs": {registry.host: {"auth": config["auth"]}}})
    assert "asks for credentials, and none are known" in refused(
        name, settings, {"configs": {registry.host: {"tls": config["tls"]}}}
    )
    wrong = {**config, "auth": {"username": registry.username, "password": "not-the-password"}}
    said = refused(name, settings, {"configs": {registry.host: wrong}})
    assert "the credentials do not suffice" in said
    assert "not-the-password" not in said
    assert "it does not have the image" in refused(f"{registry.host}/team/installer:v9", settings, known)
    only = refused(f"{registry.host}/team/installer@{digest(b'nothing')}", settings, known)
    assert "it does not have the image" in only


def test_credential_provider_supplies_registry_password(registry: RealRegistry, settings: Settings) -> None:
    known = json.loads(registry.access())
    del known["configs"][registry.host]["auth"]
    (settings.folder / "registries.yaml").write_text(json.dumps(known))
    plugins = settings.folder / "plugins"
    plugins.mkdir()
    auth = {registry.host: {"username": registry.username, "password": registry.password}}
    response = {
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "auth": auth,
    }
    (plugins / "helper").write_text(f"#!/bin/sh\ncat > /dev/null\necho '{json.dumps(response)}'\n")
    (plugins / "helper").chmod(0o700)
    (settings.folder / "plugins.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n- name: helper\n"
        "  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  defaultCacheDuration: 0s\n"
        f"  matchImages:\n  - {registry.host}\n"
    )
    assert staged(f"{registry.host}/team/installer:v1", settings) == EXPECTED


class _Issuer:
    """A token server as registries have them: a JSON Web Token for who knows the password."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority("lab tokens")
        self.bundle = write(folder, tokens=self.authority.pem)["tokens"]
        der = x509.load_pem_x509_certificate(self.authority.pem).public_bytes(Encoding.DER)
        self._chain = [base64.b64encode(der).decode()]
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = parse_qs(urlsplit(self.path).query)
                known = self.headers["Authorization"] == "Basic " + base64.b64encode(b"someone:pw").decode()
                body = json.dumps({"token": issuer.token(asked["scope"][0])} if known else {}).encode()
                self.send_response(200 if known else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        certificate, key = self.authority.server("127.0.0.1")
        files = write(folder, issuer_certificate=certificate, issuer_key=key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files["issuer_certificate"], files["issuer_key"])
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}/token"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def token(self, scope: str) -> str:
        kind, name, actions = scope.split(":")
        now = int(time.time())
        claims = {
            "iss": "lab", "aud": "registry", "sub": "someone", "jti": "1", "iat": now, "nbf": now - 60,
            "exp": now + 300,
            "access": [{"type": kind, "name": name, "actions": actions.split(",")}],
        }  # fmt: skip
        return jwt.encode(claims, self.authority.key, algorithm="ES256", headers={"x5c": self._chain})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_image_is_pulled_from_registry_with_token_authentication(settings: Settings, tmp_path: Path) -> None:
    require_registry()
    issuer = _Issuer(tmp_path)
    token = {"realm": issuer.url, "service": "registry", "issuer": "lab", "rootcertbundle": str(issuer.bundle)}
    registry = RealRegistry({"token": token})
    try:
        headers = {"Authorization": f"Bearer {issuer.token('repository:team/installer:pull,push')}"}
        registry.push("team/installer", IMAGE, "v1", headers=headers)
        name, host = f"{registry.host}/team/installer:v1", urlsplit(issuer.url).netloc
        known: dict[str, Any] = {
            "configs": {
                registry.host: {
                    "auth": {"username": "someone", "password": "pw"},
                    "tls": {"ca_file": str(registry.files["ca"])},
                },
                host: {"tls": {"ca_file": str(issuer.bundle)}},
            }
        }
        settings.folder.joinpath("registries.yaml").write_text(json.dumps(known))
        assert staged(name, settings) == EXPECTED
        (settings.folder / "work" / "0").rename(settings.folder / "kept")
        known["configs"][registry.host]["auth"]["password"] = "wrong"
        assert f"the token server {host} refuses the credentials" in refused(name, settings, known)
    finally:
        registry.stop()
        issuer.stop()
