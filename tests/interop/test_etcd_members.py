"""How plans ask for the health of etcd's members, on the real etcd: as it is by default, and as K3s runs it, with a
client port that speaks gRPC only."""

from __future__ import annotations

import datetime
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.kube import certificates
from remuda.providers.shared.distros import host_tool
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.peers import require_peer

ADDRESS = f"127.{60 + os.getpid() // 250 % 40}.{os.getpid() % 250}.7"  # ports are fixed


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    """The files of a server, by their names."""
    now = datetime.datetime.now(datetime.UTC)
    where = [ADDRESS, "127.0.0.1"]
    for name, pairs in (("server-ca", ("client", "server-client")), ("peer-ca", ("peer-server-client",))):
        key = certificates.new_key()
        authority = certificates.Authority(certificates.make_ca(key, name, 2, now), key)
        (tmp_path / f"{name}.crt").write_bytes(certificates.certificate_pem(authority.certificate))
        for pair in pairs:
            leaf = certificates.new_key()
            signed = authority.sign_server(leaf.public_key(), pair, where, 2, now, also_client=True)
            (tmp_path / f"{pair}.crt").write_bytes(certificates.certificate_pem(signed))
            (tmp_path / f"{pair}.key").write_bytes(certificates.key_pem(leaf))
    return tmp_path


@contextmanager
def etcd(tls: Path, *more: str) -> Iterator[None]:
    [program] = require_peer("etcd")
    peer, client = f"https://{ADDRESS}:2380", f"https://{ADDRESS}:2379"
    flags = {
        "name": "a",
        "data-dir": tls / "data",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"a={peer}",
        "cert-file": tls / "server-client.crt",
        "key-file": tls / "server-client.key",
        "trusted-ca-file": tls / "server-ca.crt",
        "peer-cert-file": tls / "peer-server-client.crt",
        "peer-key-file": tls / "peer-server-client.key",
        "peer-trusted-ca-file": tls / "peer-ca.crt",
    }
    command = [program, *(f"--{name}={value}" for name, value in flags.items())]
    with (tls / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--client-cert-auth", "--peer-client-cert-auth", *more], stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def becomes_healthy(tls: Path) -> bool:
    ends = time.monotonic() + LIMIT_SECONDS
    while not (healthy := host_tool._is_healthy(ADDRESS, str(tls))) and time.monotonic() < ends:
        time.sleep(0.2)
    return healthy


def test_etcd_health_endpoint_reports_healthy_member(tls: Path) -> None:
    with etcd(tls):
        assert becomes_healthy(tls), (tls / "log").read_text()
    assert not host_tool._is_healthy(ADDRESS, str(tls))


def test_grpc_only_etcd_member_is_checked_by_peer_port(tls: Path) -> None:
    with etcd(tls, f"--listen-client-http-urls=https://{ADDRESS}:2382"):
        assert becomes_healthy(tls), (tls / "log").read_text()
        url = f"https://{ADDRESS}:2379/health"
        assert (
            host_tool._says_it_is_healthy(url, lambda: host_tool._mutual(str(tls), "server-ca.crt", "client")) is None
        )
    assert not host_tool._is_healthy(ADDRESS, str(tls))
