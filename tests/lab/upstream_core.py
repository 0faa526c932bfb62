"""Clusters declared where the core is upstream's: the real API server, upstream's core manager, and `remuda manager`
with our providers alone, each a process with the rights that its manifests give it.

What our providers have there is what `clusterctl init` installs, but for the Deployment, whose part the process takes;
declared clusters have rights of their own on top.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import yaml

import remuda
from remuda.capi.inventory import ProviderType
from remuda.clusterctl.program import NAMESPACE, rights
from remuda.clusterctl.repository import components
from remuda.kube import kubeconfig
from tests.lab.children import die_with_parent
from tests.lab.clusters import ManagementServer
from tests.lab.core_manager import CoreManager, create, token_of
from tests.lab.ports import free_port
from tests.lab.server import tail
from tests.lab.up import DRIVERS, Json, condition
from tests.lab.upstream import Upstream

ACCOUNT = "remuda-manager"
_PROVIDERS: tuple[ProviderType, ...] = ("InfrastructureProvider", "BootstrapProvider", "ControlPlaneProvider")
_RUN_BY_NODES = ("Deployment", "Service")


class ManagementOnUpstream(ManagementServer, Upstream):
    """A manager of ours on the real API server, with a token of an account that was made there for it."""

    driver = "process"

    def __init__(self, *flags: str) -> None:
        super().__init__(*flags)
        self.options: Json = {}
        self.data, self.log = self.folder / "data", self.folder / "remuda.log"

    def start_manager(self, *flags: str) -> None:
        config = self.folder / "remuda.kubeconfig"
        token = token_of(self, NAMESPACE, ACCOUNT)
        kubeconfig.write(config, kubeconfig.build(self.url, ca_pem=self.ca_pem, token=token))
        command = ("-m", "remuda.cli.main", "manager", "--kubeconfig", str(config))
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *command, *flags, "--run-jobs", "--data-dir", str(self.data)],
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
        self.until(DRIVERS, self.driver, lambda obj: condition(obj, "Active") == "True")


class UpstreamCore(ManagementOnUpstream):
    """Ready when it is made: the core, and our providers beside it."""

    name = "upstream's core"

    def __init__(self) -> None:
        super().__init__()
        try:
            self.core = CoreManager(self, self.folder / "core")
            self.children.append(self.core.process)
            self._start_providers()
        except BaseException:
            self.stop()
            raise

    def _start_providers(self) -> None:
        for obj in installed():
            create(self, obj)
        self.start_manager(
            *("--controllers", "providers,provisioning"),
            *("--nodes-listen", f"127.0.0.1:{free_port()}"),
            *("--webhook-listen", f"127.0.0.1:{free_port()}"),
            "--no-leader-elect",  # who leads ends when a busy machine keeps it from renewing its Lease
        )

    @property
    def diagnosis(self) -> str:
        return "\n".join([super().diagnosis, f"the core: {self.core.said}"])


def installed() -> Iterator[Json]:
    """Each object once: the namespace is among the components of all three."""
    seen = set()
    for type in _PROVIDERS:
        for obj in yaml.safe_load_all(components(type, f"v{remuda.__version__}")):
            name = obj["kind"], obj["metadata"]["name"]
            if obj["kind"] not in _RUN_BY_NODES and name not in seen:
                seen.add(name)
                yield obj
    role, binding = rights()["ClusterRole", f"{ACCOUNT}-provisioning"], rights()["ClusterRoleBinding", ACCOUNT]
    name = role["metadata"]["name"]
    yield {**role, "metadata": {"name": name}}
    yield {**binding, "metadata": {"name": name}, "roleRef": {**binding["roleRef"], "name": name}}
