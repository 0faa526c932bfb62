"""A certificate of the user's own: who trusts what then, hosts that were there before, and what is refused.

The company of these tests is one that nobody trusts by himself: whoever gets through has been told of its root.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.e2e.program import run
from tests.e2e.test_nodes import command
from tests.lab.chains import CompanyAuthority, write
from tests.lab.clusters import FLEET_SECRETS, VERSION, DeclaredCluster, Fleet, pool
from tests.lab.custom_hosts import CustomHost
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ours import Ours
from tests.lab.ports import free_port
from tests.lab.process_machines import RKE, ProcessMachines, condition
from tests.lab.server import Server, end, tail

COMPANY = CompanyAuthority()


class Up(Ours):
    command = "up"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    chain, key = COMPANY.files(tmp_path, "localhost")
    port = free_port()
    flags = ("--listen", f"127.0.0.1:{port}", "--server-url", f"https://localhost:{port}")
    running = Up(*flags, "--tls-cert", str(chain), "--tls-key", str(key))
    try:
        yield running
    finally:
        running.stop()


def issuer(url: str, host: str) -> str:
    """Who vouches for the certificate that is shown there to who asks for `host`."""
    parts = urlsplit(url)
    anyone = ssl.create_default_context(cadata=COMPANY.root.decode())
    with (
        socket.create_connection((parts.hostname, parts.port)) as raw,
        anyone.wrap_socket(raw, server_hostname=host) as shown,
    ):
        return str((shown.getpeercert() or {})["issuer"])


def test_custom_certificate_is_trusted_by_users_and_hosts_and_local_access_works(up: Up, tmp_path: Path) -> None:
    assert up.url.startswith("https://127.0.0.1:")
    assert up.http("GET", "/readyz").code == 200  # by our own certificate, which is good for that address
    public = up.url.replace("127.0.0.1", "localhost")

    theirs = ssl.create_default_context(cadata=COMPANY.root.decode())
    with urllib.request.urlopen(f"{public}/cacerts", context=theirs) as answer:
        told = answer.read()
    assert told.count(b"BEGIN CERTIFICATE") == 2
    assert COMPANY.root in told
    assert (up.data / "pki/ca.crt").read_bytes() in told

    # The administrator's certificate is ours whatever the server shows; and only ours says who somebody is.
    config = yaml.safe_load(up.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = public
    by_name = tmp_path / "by-name.kubeconfig"
    by_name.write_text(yaml.safe_dump(config))
    administrator = Server(by_name)
    assert administrator.http("GET", "/api/v1/namespaces/default/secrets").code == 200
    administrator.stop()
    stranger = ssl.create_default_context(cadata=COMPANY.root.decode())
    pair = tmp_path / "stranger"
    pair.mkdir()
    stranger.load_cert_chain(*write(pair, *COMPANY.certificate("kubernetes-admin")))
    with pytest.raises(OSError):  # the connection ends, one way or another
        urllib.request.urlopen(f"{public}/api/v1/namespaces/default/secrets", context=stranger)

    host = CustomHost(tmp_path / "host")
    process_machines = ProcessMachines(up, tmp_path / "host/root", lambda: tail(up.log, 40))
    try:
        line = command(process_machines)
        assert hashlib.sha256(told).hexdigest() in line
        done = host.run(f"{line} --worker")
        assert done.returncode == 0, done
        (machine,) = process_machines.items("/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machines")
        name = machine["metadata"]["name"]
        process_machines.until(f"{RKE}/rkebootstraps", name, lambda obj: condition(obj, "AgentConnected") == "True")
        process_machines.follows_a_plan(name)
    finally:
        host.uninstall()


def test_existing_hosts_accept_custom_certificate_when_root_was_distributed_first(tmp_path: Path) -> None:
    root = tmp_path / "root.pem"
    root.write_bytes(COMPANY.root)
    chain, key = COMPANY.files(tmp_path, "127.0.0.1", "remuda.example.com")
    fleet = Fleet()
    try:
        fleet.add_nano(tmp_path, VERSION)
        cluster = DeclaredCluster(fleet, "ranch", [pool("server", 1, "ecw")])
        cluster.apply()
        cluster.has_nodes(1)
        standing = cluster.identities()
        (machine,) = cluster.machines()
        (place,) = fleet.hosts.glob("process/*/root")
        told = place / "var/lib/rancher/agent/servers.d/50-manager.json"
        assert not told.exists()

        again(fleet, "--server-ca", str(root))
        cluster.until(lambda: _applied(fleet, machine) and told.exists(), "the host is told of the root")
        known = base64.b64decode(json.loads(told.read_text())["certificate-authority-data"])
        assert known.startswith(COMPANY.root)

        again(fleet, "--tls-cert", str(chain), "--tls-key", str(key))
        assert "Ranch Issuing" in str(issuer(fleet.url, "127.0.0.1"))
        cluster.config["machineGlobalConfig"] = {"node-label": ["after=the-change"]}
        cluster.apply()
        cluster.becomes_ready()
        cluster.until(
            lambda: _applied(fleet, machine), "the host has applied what it was told over the new certificate"
        )
        status = place / "var/lib/rancher/capr/tunnel/status.json"
        cluster.until(lambda: json.loads(status.read_text())["connected_to"], "the tunnel is back")
        assert cluster.identities() == standing
        cluster.delete()
        cluster.leaves_nothing()
    finally:
        fleet.stop()


def again(fleet: Fleet, *flags: str) -> None:
    """Ended in good order, and started with more options; its kubeconfig says whom to trust from then on."""
    end(fleet.process, LIMIT_SECONDS)
    assert fleet.process.stdout is not None
    fleet.process.stdout.close()
    fleet._flags += flags
    fleet._run(LIMIT_SECONDS)
    Server.__init__(fleet, fleet.data / "admin.kubeconfig")


def _applied(fleet: Fleet, machine: str) -> bool:
    """The host has carried out its newest plan."""
    for secret in fleet.items(FLEET_SECRETS):
        data = secret.get("data") or {}
        if secret["metadata"]["name"].startswith(machine) and "plan" in data:
            wanted = hashlib.sha256(base64.b64decode(data["plan"])).hexdigest()
            return base64.b64decode(data.get("applied-checksum", "")).decode() == wanted
    return False


def refused(tmp_path: Path, *flags: str | Path, said: str, command: str = "up") -> None:
    data = tmp_path / "data"
    place = ("--nodes-listen", "0.0.0.0:0") if command == "manager" else ("--listen", "0.0.0.0:0", "--data-dir", data)
    ended = run(command, *place, *flags)
    assert (ended.code, ended.out) == (1, ""), ended
    assert re.search(said, ended.err), ended
    assert len(ended.err.splitlines()) == 1, ended
    assert "PRIVATE KEY" not in ended.err
    assert not data.exists()


@pytest.mark.parametrize("command", ["up", "manager"])
def test_invalid_certificate_options_are_rejected_at_startup(tmp_path: Path, command: str) -> None:
    chain, key = COMPANY.files(tmp_path, "remuda.example.com")
    url = ("--server-url", "https://remuda.example.com")
    pair = ("--tls-cert", chain, "--tls-key", key)
    refused(
        tmp_path, *url, "--tls-cert", chain, said="--tls-cert and --tls-key must be given together", command=command
    )
    refused(
        tmp_path,
        "--server-url",
        "https://other.example.com",
        *pair,
        said="chain.pem: the certificate is for remuda.example.com, not for other.example.com",
        command=command,
    )
    refused(tmp_path, *url, "--tls-cert", key, "--tls-key", key, said="has no certificate in PEM", command=command)
    refused(
        tmp_path, *url, "--tls-cert", "none", "--tls-key", key, said="none cannot be read: No such", command=command
    )
    key.chmod(0o644)
    refused(tmp_path, *url, *pair, said="can be read by everybody on this machine: chmod o-r", command=command)
    write(tmp_path, *COMPANY.certificate("remuda.example.com"))
    refused(tmp_path, *url, *pair, said="does not end with the root .* name its file with --server-ca", command=command)
    COMPANY.files(tmp_path, "remuda.example.com", days=-0.001)
    refused(tmp_path, *url, *pair, said="expired on 20", command=command)
