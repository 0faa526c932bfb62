"""Upstream's kube-controller-manager, with the five controllers whose work our upkeep does, against any server.

It runs as it does in production: under its own name, each controller with a service account of its own, so that the
default roles of the server are what it has to live with.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from remuda.kube import kubeconfig
from tests.lab.children import die_with_parent
from tests.lab.peers import require_peer
from tests.lab.server import Server, end

NAME = "system:kube-controller-manager"
CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "clusterrole-aggregation-controller",
    "resourcequota-controller",
)


class ControllerManager:
    """`certificate` and `key` are a client certificate for NAME; `token_key` signs service-account tokens."""

    def __init__(self, server: Server, folder: Path, certificate: bytes, key: bytes, token_key: Path) -> None:
        (program,) = require_peer("kube-controller-manager")
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "kube-controller-manager.log"
        config, ca = folder / "controller-manager.kubeconfig", folder / "ca.pem"
        kubeconfig.write(
            config,
            kubeconfig.build(
                server.url, ca_pem=server.ca_pem, client_certificate_pem=certificate, client_key_pem=key, user=NAME
            ),
        )
        ca.write_bytes(server.ca_pem)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    program,
                    f"--kubeconfig={config}",
                    f"--controllers={','.join(CONTROLLERS)}",
                    "--use-service-account-credentials=true",
                    f"--service-account-private-key-file={token_key}",
                    f"--root-ca-file={ca}",
                    "--leader-elect=true",
                    "--secure-port=0",
                ],
                stdout=log,
                stderr=log,
                cwd=folder,
                preexec_fn=die_with_parent,
            )

    def stop(self) -> None:
        end(self.process)
