"""Starting: what the first start makes, and what later ones keep."""

from __future__ import annotations

import base64
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from tests.e2e.conftest import Launch
from tests.e2e.program import READY, Running, mode, run, terminate
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port


def test_first_start_creates_data_directory_and_admin_kubeconfig(data: Path, launch: Launch) -> None:
    server = launch(data)
    said = READY.fullmatch(server.line)
    assert said is not None
    url, pid, kubeconfig = said.groups()
    assert int(pid) == server.pid
    assert Path(kubeconfig) == data / "admin.kubeconfig"
    assert yaml.safe_load(Path(kubeconfig).read_text())["clusters"][0]["cluster"]["server"] == url
    assert mode(data) == 0o700
    assert mode(data / "admin.kubeconfig") == 0o600
    assert mode(data / "state.db") == 0o600
    assert mode(data / "pki") == 0o700
    assert {path.name for path in (data / "pki").iterdir() if mode(path) == 0o600} >= {
        "ca.key", "apiserver.key", "admin.key", "sa.key",
    }  # fmt: skip
    assert server.http("GET", "/readyz").content == b"ok"
    whoami = server.http(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    assert whoami.body["status"]["userInfo"]["username"] == "kubernetes-admin"
    assert server.complaints == ""


def test_data_files_are_private_regardless_of_umask(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.umask(0); from remuda.cli.main import main; "
        "main(['apiserver', '--data-dir', sys.argv[1], '--listen', '127.0.0.1:0'])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert READY.fullmatch(process.stdout.readline())
            found = [path for path in (tmp_path / "data").rglob("*") if path.suffix not in (".crt", ".pub")]
            assert [path.name for path in found if mode(path) & 0o077] == []
            assert {"state.db", "state.db-wal", "admin.kubeconfig", "lock"} <= {path.name for path in found}
        finally:
            process.kill()


def test_restart_keeps_kubeconfig_and_data(data: Path, launch: Launch) -> None:
    first = launch(data)
    first.create("kept", key="value")
    revision = int(first.http("GET", "/api/v1/namespaces/default/configmaps").body["metadata"]["resourceVersion"])
    kubeconfig = (data / "admin.kubeconfig").read_text()
    port = first.url.rpartition(":")[2]
    terminate(first)

    second = launch(data, "--listen", f"127.0.0.1:{port}")
    assert (data / "admin.kubeconfig").read_text() == kubeconfig
    assert first.http("GET", "/api/v1/namespaces/default/configmaps/kept").body["data"] == {"key": "value"}
    assert second.names() >= {"kept"}
    newer = second.http("GET", "/api/v1/namespaces/default/configmaps").body["metadata"]["resourceVersion"]
    assert int(newer) >= revision


def test_idle_restart_writes_nothing(data: Path, launch: Launch) -> None:
    """Bootstrap and upkeep find everything as it should be; otherwise each restart would wake every watcher."""
    first = launch(data)
    first.create("something")
    terminate(first)
    revisions = set()
    for _ in range(2):
        server = launch(data)
        assert len(list(islice(server.stream("/api/v1/namespaces?watch=1"), 4))) == 4
        time.sleep(1)  # in which upkeep may do what it thinks it must
        revisions.add(server.http("GET", "/api/v1/namespaces").body["metadata"]["resourceVersion"])
        terminate(server)
    assert len(revisions) == 1


def test_sigkill_loses_no_acknowledged_writes(data: Path, launch: Launch) -> None:
    first = launch(data)
    for number in range(50):
        first.create(f"object-{number}")
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait()
    second = launch(data)
    assert second.names() >= {f"object-{number}" for number in range(50)}


def test_added_tls_san_is_served_with_same_ca(data: Path, launch: Launch) -> None:
    first = launch(data)
    authority = first.ca_pem
    assert "remuda.example" not in _served_names(first)
    terminate(first)
    second = launch(data, "--tls-san", "remuda.example", "--tls-san", "192.0.2.7")
    assert second.ca_pem == authority
    assert {"remuda.example", "192.0.2.7", "localhost", "127.0.0.1"} <= _served_names(second)


def _served_names(server: Running) -> set[str]:
    host, port = server.url.removeprefix("https://").split(":")
    context = ssl.create_default_context(cadata=server.ca_pem.decode())
    with (
        socket.create_connection((host, int(port)), timeout=LIMIT_SECONDS) as raw,
        context.wrap_socket(raw, server_hostname=host) as wrapped,
    ):
        der = wrapped.getpeercert(binary_form=True)
    assert der is not None
    names = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(name) for name in names.get_values_for_type(x509.DNSName)} | {
        str(address) for address in names.get_values_for_type(x509.IPAddress)
    }


def test_token_file_entries_authenticate_users(tmp_path: Path, launch: Launch) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('word-of-anna,anna,7,"system:masters,herd"\nword-of-ben,ben,8\n')
    server = launch(tmp_path / "data", "--token-auth-file", str(file))
    path = "/api/v1/namespaces/default/configmaps"
    assert server.http("GET", path, token="word-of-anna").code == 200
    refused = server.http("GET", path, token="word-of-ben")
    assert refused.code == 403
    assert refused.body["message"].startswith('configmaps is forbidden: User "ben" cannot list resource "configmaps"')
    unknown = server.http("GET", path, token="word-of-nobody")
    assert (unknown.code, unknown.body["reason"]) == (401, "Unauthorized")


def test_no_upkeep_flag_disables_garbage_collection_and_namespace_deletion(data: Path, launch: Launch) -> None:
    server = launch(data, "--no-upkeep")
    made = server.http("POST", "/api/v1/namespaces", {"metadata": {"name": "idle"}})
    assert made.code == 201
    owner = server.create("owner")
    body = {
        "metadata": {
            "name": "owned",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
            ],
        }
    }
    assert server.http("POST", "/api/v1/namespaces/default/configmaps", body).code == 201
    assert server.http("DELETE", "/api/v1/namespaces/default/configmaps/owner").code == 200
    ending = server.http("DELETE", "/api/v1/namespaces/idle")
    assert ending.body["status"]["phase"] == "Terminating"
    time.sleep(1)  # in which upkeep would do it
    assert "owned" in server.names()
    assert server.http("GET", "/api/v1/namespaces/idle").body["status"]["phase"] == "Terminating"
    assert server.http("GET", "/api/v1/namespaces/idle/serviceaccounts").body["items"] == []


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", ""])
def test_listen_accepts_hostname_wildcard_and_empty_host(data: Path, launch: Launch, host: str) -> None:
    port = free_port()
    server = launch(data, "--listen", f"{host}:{port}")
    assert server.http("GET", "/readyz").code == 200
    assert server.url.endswith(f":{port}")


def test_admin_kubeconfig_is_complete(data: Path, launch: Launch) -> None:
    launch(data)
    config = yaml.safe_load((data / "admin.kubeconfig").read_text())
    user = config["users"][0]["user"]
    assert base64.b64decode(user["client-certificate-data"]) == (data / "pki" / "admin.crt").read_bytes()
    context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    assert context == {"cluster": config["clusters"][0]["name"], "user": config["users"][0]["name"]}


def test_help_is_there_for_every_command() -> None:
    overview = run("--help")
    assert overview.code == 0
    for command in ("apiserver", "backup", "restore"):
        assert f"  {command} " in overview.out
        said = run(command, "--help")
        assert (said.code, said.err) == (0, "")
        assert f" {command} [OPTIONS]" in said.out.splitlines()[0]
    assert "remuda, version" in run("--version").out


def test_unknown_command_error_suggests_closest_match() -> None:
    ended = run("apisever")
    assert ended.code == 2
    assert "Error: No such command 'apisever': did you mean" in ended.err
    assert ended.err.endswith("apiserver`?\n")
