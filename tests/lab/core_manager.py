"""Upstream's own core of Cluster API on a real API server: its definitions, webhooks and rights as its manifests have
them, and its manager as a process.

The manifests are those beside the source the manager is built from. What an installer would fill in is filled in
here: names and namespace, the label of the provider, and where webhooks are found. Feature gates are the defaults.
"""

from __future__ import annotations

import base64
import http.client
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from remuda.kube import kubeconfig
from tests.lab import certificates
from tests.lab.children import die_with_parent
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.peers import require_peer, require_source
from tests.lab.ports import free_port
from tests.lab.server import Server, end, tail

NAMESPACE = "capi-system"
ACCOUNT = "capi-manager"
_LABELS = {"cluster.x-k8s.io/provider": "cluster-api"}
_AGGREGATED = {"cluster.x-k8s.io/aggregate-to-manager": "true"}
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Json = dict[str, Any]


class CoreManager:
    """Installed and ready when it is made; `stop` ends the process and leaves everything else on the server."""

    def __init__(self, server: Server, folder: Path) -> None:
        (self._program,) = require_peer("capi-core-manager")
        self._config = require_source("capi-core-manager") / "config"
        folder.mkdir(parents=True)
        self.log = folder / "capi-core-manager.log"
        self._folder, self._server = folder, server
        self._webhooks = f"https://127.0.0.1:{free_port()}"
        self._health = free_port()
        authority = certificates.Authority("webhooks of the core")
        self._ca = base64.b64encode(authority.pem).decode()
        self._write_files(authority)
        self._install()
        self._kubeconfig = folder / "capi-core-manager.kubeconfig"
        token = token_of(server, NAMESPACE, ACCOUNT)
        kubeconfig.write(self._kubeconfig, kubeconfig.build(server.url, ca_pem=server.ca_pem, token=token))
        self.process = self._run()
        self._wait_until_ready()

    def stop(self) -> None:
        end(self.process)

    @property
    def said(self) -> str:
        return tail(self.log, 40)

    # --- what it needs on the server

    def _install(self) -> None:
        for obj in (*self._accounts(), *self._definitions(), *self._webhook_configurations()):
            create(self._server, obj)
        deadline = time.monotonic() + LIMIT_SECONDS
        while missing := [name for name, served in self._served().items() if not served]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not served after {LIMIT_SECONDS:.0f} s: {missing}")
            time.sleep(0.1)

    def _accounts(self) -> Iterator[Json]:
        """The manager's role is part of one that gathers what providers add to it."""
        yield _object("v1", "Namespace", NAMESPACE)
        yield _object("v1", "ServiceAccount", ACCOUNT, namespace=NAMESPACE)
        for name, labels in (("role", _AGGREGATED), ("aggregated_role", {})):
            (role,) = _read(self._config / "rbac" / f"{name}.yaml")
            role["metadata"] = {"name": f"capi-{role['metadata']['name']}", "labels": {**_LABELS, **labels}}
            yield role
        yield _object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "capi-manager-rolebinding") | {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "capi-aggregated-manager-role",
            },
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        }

    def _definitions(self) -> Iterator[Json]:
        """With the conversion of versions by the manager."""
        folder = self._config / "crd"
        conversions = {}
        for patch in sorted((folder / "patches").glob("webhook_in_*.yaml")):
            for change in _read(patch):
                conversions[change["metadata"]["name"]] = change["spec"]["conversion"]
        for base in sorted((folder / "bases").glob("*.yaml")):
            for definition in _read(base):
                metadata = definition["metadata"]
                metadata["labels"] = {**(metadata.get("labels") or {}), **_LABELS}
                conversion = conversions[metadata["name"]]
                conversion["webhook"]["clientConfig"] = self._found_at(conversion["webhook"]["clientConfig"])
                definition["spec"]["conversion"] = conversion
                yield definition

    def _webhook_configurations(self) -> Iterator[Json]:
        for configuration in _read(self._config / "webhook" / "manifests.yaml"):
            configuration["metadata"] = {"name": f"capi-{configuration['metadata']['name']}", "labels": _LABELS}
            for webhook in configuration["webhooks"]:
                webhook["clientConfig"] = self._found_at(webhook["clientConfig"])
            yield configuration

    def _found_at(self, client: Json) -> Json:
        """By an address, where a Service would stand for Pods."""
        return {"url": f"{self._webhooks}{client['service']['path']}", "caBundle": self._ca}

    def _served(self) -> dict[str, bool]:
        selector = "%2C".join(f"{key}%3D{value}" for key, value in _LABELS.items())
        items = self._server.http("GET", f"{_DEFINITIONS}?labelSelector={selector}").body["items"]
        return {
            one["metadata"]["name"]: any(
                condition["type"] == "Established" and condition["status"] == "True"
                for condition in one["status"].get("conditions") or ()
            )
            for one in items
        }

    # --- the process

    def _write_files(self, authority: certificates.Authority) -> None:
        certificate, key = authority.server("127.0.0.1")
        for name, content in (("tls.crt", certificate), ("tls.key", key)):
            path = self._folder / name
            path.touch(mode=0o600)
            path.write_bytes(content)

    def _run(self) -> subprocess.Popen[bytes]:
        flags = (
            f"--kubeconfig={self._kubeconfig}",
            f"--webhook-port={urlsplit(self._webhooks).port}",
            f"--webhook-cert-dir={self._folder}",
            f"--health-addr=127.0.0.1:{self._health}",
            "--diagnostics-address=0",
            "--leader-elect=false",
        )
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["manager", *flags],
                executable=self._program,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={"PATH": os.environ["PATH"], "HOME": str(self._folder)},
                preexec_fn=die_with_parent,
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"upstream's core is not ready:\n{self.said}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._health, timeout=LIMIT_SECONDS)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()


def create(server: Server, obj: Json) -> None:
    group = "/api/v1" if obj["apiVersion"] == "v1" else f"/apis/{obj['apiVersion']}"
    namespace = obj["metadata"].get("namespace")
    place = f"{group}/namespaces/{namespace}" if namespace else group
    reply = server.http("POST", f"{place}/{obj['kind'].lower()}s", obj)
    assert reply.code == http.client.CREATED, reply


def token_of(server: Server, namespace: str, account: str) -> str:
    """By which a service account is known for the next hours."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    reply = server.http("POST", path, {"spec": {"expirationSeconds": 4 * 3600}})
    assert reply.code == http.client.CREATED, reply
    return str(reply.body["status"]["token"])


def _object(api_version: str, kind: str, name: str, **metadata: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **metadata}}


def _read(path: Path) -> list[Json]:
    return [obj for obj in yaml.safe_load_all(path.read_text()) if obj]
