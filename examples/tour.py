"""A tour of the engine: starts it on an empty directory, uses it over its own API, kills it, and starts it again.

Needs nothing but Remuda itself. Everything happens in a temporary directory and on loopback.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

BOLD, DIM, GREEN, PLAIN = ("\033[1m", "\033[2m", "\033[32m", "\033[0m") if sys.stdout.isatty() else ("", "", "", "")


class Server:
    """`remuda apiserver` as a child process, and a client for it made from its kubeconfig."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        command = [sys.executable, "-m", "remuda.cli.main", "apiserver", "--data-dir", str(data_dir)]
        self.process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline().strip()
        if not self.ready_line:
            raise SystemExit("the server did not start")
        config = yaml.safe_load((data_dir / "admin.kubeconfig").read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url = cluster["server"]
        self._tls = ssl.create_default_context(cadata=_text(cluster["certificate-authority-data"]))
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_text(_text(user["client-certificate-data"]) + _text(user["client-key-data"]))
            self._tls.load_cert_chain(pair)

    def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": content_type}, method=method)
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def wait_for(self, path: str, done: Any) -> Any:
        deadline = time.monotonic() + 10
        while not done(found := self.call("GET", path)):
            if time.monotonic() > deadline:
                raise SystemExit(f"waited in vain for {path}: {found}")
            time.sleep(0.02)
        return found


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


def step(title: str) -> None:
    print(f"\n{BOLD}{title}{PLAIN}")


def show(text: str) -> None:
    print(f"  {GREEN}✓{PLAIN} {text}")


HORSES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "horses.ranch.example.com"},
    "spec": {
        "group": "ranch.example.com",
        "scope": "Namespaced",
        "names": {"plural": "horses", "singular": "horse", "kind": "Horse", "shortNames": ["hs"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Coat", "type": "string", "jsonPath": ".spec.coat"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "coat": {"type": "string", "enum": ["bay", "grey", "pinto"]},
                                    "hands": {"type": "integer", "default": 15, "minimum": 1},
                                    "brand": {"type": "string", "maxLength": 20},
                                },
                                "x-kubernetes-validations": [
                                    {
                                        "rule": "!has(oldSelf.brand) || self.brand == oldSelf.brand",
                                        "message": "a brand is for life",
                                    }
                                ],
                            }
                        },
                    }
                },
            }
        ],
    },
}
HERD = "/apis/ranch.example.com/v1/namespaces/default/horses"
APPLY = "application/apply-patch+yaml"


def tour(data_dir: Path) -> None:
    step("1. From nothing to a Kubernetes API")
    server = Server(data_dir)
    show(server.ready_line)
    groups = server.call("GET", "/apis")["groups"]
    show(f"serves Kubernetes {server.call('GET', '/version')['gitVersion']}, {len(groups) + 1} API groups")

    step("2. A kind of your own")
    server.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", HORSES)
    server.wait_for("/apis/ranch.example.com/v1", lambda found: found.get("resources"))
    show("CustomResourceDefinition horses.ranch.example.com established")

    horse = {"apiVersion": "ranch.example.com/v1", "kind": "Horse", "metadata": {"name": "dusty"}}
    applied = server.call(
        "PATCH", f"{HERD}/dusty?fieldManager=tour", {**horse, "spec": {"coat": "bay", "brand": "R"}}, APPLY
    )
    show(f"server-side apply made horse/dusty; defaulted hands={applied['spec']['hands']}")

    refused = server.call("PATCH", f"{HERD}/dusty?fieldManager=tour", {**horse, "spec": {"coat": "plaid"}}, APPLY)
    show(f"{refused['code']} {refused['reason']}: {refused['message']}")
    refused = server.call("PATCH", f"{HERD}/dusty", {"spec": {"brand": "X"}}, "application/merge-patch+json")
    show(f"{refused['code']} {refused['reason']}: {refused['message']}")
    rival = server.call("PATCH", f"{HERD}/dusty?fieldManager=rival", {**horse, "spec": {"coat": "grey"}}, APPLY)
    show(f"{rival['code']} {rival['reason']}: {rival['message']}")

    step("3. What belongs together goes together")
    owner = {"apiVersion": "ranch.example.com/v1", "kind": "Horse", "name": "dusty", "uid": applied["metadata"]["uid"]}
    saddle = {"metadata": {"name": "saddle", "ownerReferences": [owner]}, "data": {"leather": "brown"}}
    server.call("POST", "/api/v1/namespaces/default/configmaps", saddle)
    server.call("DELETE", f"{HERD}/dusty")
    server.wait_for("/api/v1/namespaces/default/configmaps/saddle", lambda found: found.get("code") == 404)
    show("deleted horse/dusty; its configmap/saddle followed")

    step("4. Kill -9, and nothing is lost")
    last = "0"
    for n in range(200):
        last = server.call("POST", HERD, {**horse, "metadata": {"name": f"mount-{n}"}})["metadata"]["resourceVersion"]
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    server = Server(data_dir)
    show(server.ready_line)
    found = server.call("GET", HERD)
    newest = max(int(item["metadata"]["resourceVersion"]) for item in found["items"])
    if len(found["items"]) != 200 or newest != int(last):
        raise SystemExit(f"lost writes: {len(found['items'])} horses, newest {newest}, expected 200 and {last}")
    show(f"all {len(found['items'])} horses are back, up to revision {newest}")

    step("5. It ends well")
    server.process.terminate()
    show(f"SIGTERM: exit code {server.process.wait(timeout=10)}")
    print(f"\n{DIM}Yours: .venv/bin/remuda apiserver --data-dir ./data")
    print(f"       kubectl --kubeconfig ./data/admin.kubeconfig get namespaces{PLAIN}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="remuda-tour-") as folder:
        tour(Path(folder) / "data")
