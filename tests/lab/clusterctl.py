"""kubectl and the real clusterctl, as somebody uses them who has a kubeconfig, a home of their own and no network."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.program import run
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.peers import require_peer

Json = dict[str, Any]

PATIENCE = f"{LIMIT_SECONDS:.0f}s"


def write_repository(directory: Path) -> Path:
    """What `remuda clusterctl-repository` makes; the config file for clusterctl in it."""
    written = run("clusterctl-repository", directory, seconds=LIMIT_SECONDS)
    assert (written.code, written.err) == (0, "")
    return directory / "clusterctl.yaml"


class Tools:
    def __init__(self, home: Path, kubeconfig: Path, namespace: str, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: variables of their environment."""
        self._kubectl, self._clusterctl = require_peer("kubectl", "clusterctl")
        self.home = home
        self.kubeconfig = kubeconfig
        self.namespace = namespace
        self._settings = dict(settings or {})

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self._run(self._kubectl, *arguments, stdin=stdin)

    def clusterctl(self, *arguments: str) -> str:
        return self._run(self._clusterctl, *arguments)

    def get(self, kind: str, name: str) -> Json:
        found: Json = json.loads(self.kubectl("get", kind, name, "-n", self.namespace, "-o", "json"))
        return found

    def list(self, kind: str, *arguments: str) -> list[Json]:
        text = self.kubectl("get", kind, "-n", self.namespace, "-o", "json", *arguments)
        found: list[Json] = json.loads(text)["items"]
        return found

    def wait(self, *arguments: str, patience: str = PATIENCE) -> None:
        self.kubectl("wait", *arguments, "-n", self.namespace, f"--timeout={patience}")

    def available(self, cluster: str, patience: str = PATIENCE) -> None:
        self.wait(f"clusters.cluster.x-k8s.io/{cluster}", "--for=condition=Available", patience=patience)

    def nodes(self, cluster: str) -> dict[str, Json]:
        """Of a workload cluster, read with the kubeconfig that clusterctl gives out."""
        config = self.home / f"{cluster}.kubeconfig"
        config.write_text(self.clusterctl("get", "kubeconfig", cluster, "-n", self.namespace))
        theirs = Tools(self.home, config, self.namespace)
        found = json.loads(theirs.kubectl("get", "nodes", "-o", "json"))["items"]
        return {node["metadata"]["name"]: node for node in found}

    def described(self, cluster: str) -> Mapping[str, Sequence[str]]:
        return rows(self.clusterctl("describe", "cluster", cluster, "-n", self.namespace, "--grouping=false"))

    def _run(self, program: Path, *arguments: str, stdin: str | None = None) -> str:
        environment = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(self.kubeconfig),
            "CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
            "GOPROXY": "off",
            **self._settings,
        }
        done = subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=1800,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, f"{program.name} {' '.join(arguments)}: {done.stderr}\n{done.stdout}"
        return done.stdout


def rows(text: str) -> dict[str, list[str]]:
    """The lines of a drawn tree by the object at their beginning."""
    found = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.lstrip(" │├└─").partition("  ")
        found[name] = rest.split()
    return found
