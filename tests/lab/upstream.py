"""The real thing: etcd, kube-apiserver and the five controllers whose work our upkeep does.

Everything listens on loopback and lives in one temporary folder. etcd does not sync to disk, unless asked to: nothing
here must survive. The API server runs with RBAC and with its default admission plugins, less those whose other half
is a node, a scheduler or a controller that runs on neither side (docs/compatibility.md); the other flags that differ
from a production server are those a single throw-away process needs.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from remuda.kube import kubeconfig
from tests.lab import certificates
from tests.lab.children import die_with_parent
from tests.lab.controllers import CONTROLLERS
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.peers import require_peer
from tests.lab.ports import free_port
from tests.lab.server import Server, end

DISABLED_PLUGINS = (
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "LimitRanger",
    "PersistentVolumeClaimResize",
    "PodSecurity",
    "Priority",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
)


class Upstream(Server):
    name = "upstream"

    def __init__(
        self, *flags: str, ready_seconds: float = LIMIT_SECONDS, durable: bool = False, controllers: bool = True
    ) -> None:
        """`durable`: etcd syncs every write. `controllers=False`: only etcd and the API server."""
        self.folder = Path(tempfile.mkdtemp(prefix="remuda-lab-upstream-"))
        self.children: list[subprocess.Popen[bytes]] = []
        try:
            files = self._start(flags, durable, ready_seconds)
            if controllers:
                self._run(require_peer("kube-controller-manager")[0], *_manager_flags(files, self.kubeconfig))
        except BaseException:
            self._remove()
            raise

    def _start(self, flags: tuple[str, ...], durable: bool, seconds: float) -> dict[str, Path]:
        etcd, apiserver = require_peer("etcd", "kube-apiserver")
        port, etcd_url = free_port(), f"http://127.0.0.1:{free_port()}"
        files = self._write_files(port)
        self._run(etcd, *_etcd_flags(self.folder, etcd_url), *(() if durable else ("--unsafe-no-fsync",)))
        given = {flag.partition("=")[0] for flag in flags}  # in the place of ours: some add up
        own = [flag for flag in _apiserver_flags(files, port, etcd_url) if flag.partition("=")[0] not in given]
        process = self._run(apiserver, *own, *flags)
        super().__init__(self.folder / "admin.kubeconfig")
        self.wait_until_ready(process, seconds, self.folder / "kube-apiserver.log")
        return files

    def _write_files(self, port: int) -> dict[str, Path]:
        authority = certificates.Authority("lab")
        server, server_key = authority.server("127.0.0.1")
        client, client_key = authority.client("kubernetes-admin", "system:masters")
        accounts = certificates.new_key()
        public = accounts.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        kubeconfig.write(
            self.folder / "admin.kubeconfig",
            kubeconfig.build(
                f"https://127.0.0.1:{port}",
                ca_pem=authority.pem,
                client_certificate_pem=client,
                client_key_pem=client_key,
            ),
        )
        return certificates.write(
            self.folder,
            ca=authority.pem,
            server=server,
            server_key=server_key,
            accounts=certificates.key_pem(accounts),
            accounts_public=public,
        )

    def _run(self, program: Path, *flags: str) -> subprocess.Popen[bytes]:
        name = program.name.rpartition("-v")[0]
        with (self.folder / f"{name}.log").open("wb") as log:
            # Its own name, not the file's with a version: it is the field manager of what the server writes itself.
            process = subprocess.Popen(
                [name, *flags], executable=program, stdout=log, stderr=log, cwd=self.folder, preexec_fn=die_with_parent
            )
        self.children.append(process)
        return process

    def _remove(self) -> None:
        for process in reversed(self.children):
            end(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        super().stop()
        self._remove()


def _etcd_flags(folder: Path, url: str) -> tuple[str, ...]:
    peer = f"http://127.0.0.1:{free_port()}"
    return (
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--log-level=error",
    )


def _apiserver_flags(files: dict[str, Path], port: int, etcd_url: str) -> tuple[str, ...]:
    return (
        f"--etcd-servers={etcd_url}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={files['server']}",
        f"--tls-private-key-file={files['server_key']}",
        f"--client-ca-file={files['ca']}",
        f"--service-account-key-file={files['accounts_public']}",
        f"--service-account-signing-key-file={files['accounts']}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--disable-admission-plugins={','.join(DISABLED_PLUGINS)}",
    )


def _manager_flags(files: dict[str, Path], kubeconfig_path: Path) -> tuple[str, ...]:
    return (
        f"--kubeconfig={kubeconfig_path}",
        f"--controllers={','.join(CONTROLLERS)}",
        f"--service-account-private-key-file={files['accounts']}",
        f"--root-ca-file={files['ca']}",
        "--leader-elect=false",
        "--secure-port=0",
    )
