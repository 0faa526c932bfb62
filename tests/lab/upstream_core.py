"""Clusters declared where the core is upstream's: the real API server, upstream's core manager, and `remuda manager`
with our providers alone, each a process with the rights that its manifests give it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import yaml

from remuda.kube import kubeconfig
from tests.lab.children import die_with_parent
from tests.lab.clusters import Land
from tests.lab.core_manager import CoreManager, create, token_of
from tests.lab.server import free_port, tail
from tests.lab.up import DRIVERS, condition
from tests.lab.upstream import Upstream

RIGHTS = Path(__file__).parents[2] / "examples" / "rbac.yaml"
NAMESPACE, ACCOUNT = "remuda-system", "remuda-manager"


class UpstreamCore(Land, Upstream):
    """Ready when it is made: the core, and our providers beside it."""

    name = "upstream's core"
    driver = "process"

    def __init__(self) -> None:
        super().__init__()
        try:
            self.options = {}
            self.data, self.log = self.folder / "data", self.folder / "remuda.log"
            self.core = CoreManager(self, self.folder / "core")
            self.children.append(self.core.process)
            self._start_providers()
            self.until(DRIVERS, self.driver, lambda obj: condition(obj, "Active") == "True")
        except BaseException:
            self.stop()
            raise

    def _start_providers(self) -> None:
        for obj in yaml.safe_load_all(RIGHTS.read_text()):
            create(self, obj)
        config = self.folder / "remuda.kubeconfig"
        token = token_of(self, NAMESPACE, ACCOUNT)
        kubeconfig.write(config, kubeconfig.build(self.url, ca_pem=self.ca_pem, token=token))
        command = ("-m", "remuda.cli.main", "manager", "--kubeconfig", str(config))
        flags = ("--controllers", "providers,provisioning", "--nodes-listen", f"127.0.0.1:{free_port()}")
        jobs = ("--run-jobs", "--data-dir", str(self.data))
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command, *flags, *jobs],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent,
            )
        self.children.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        if " ready" not in line:
            raise RuntimeError(f"remuda manager did not start: {line}\n{tail(self.log)}")

    @property
    def told(self) -> str:
        return "\n".join([super().told, f"the core: {self.core.said}"])
