"""docs/tenancy.md, run as it is written: an administrator sets up a tenant, who creates and deletes a cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.kube import kubeconfig
from tests.e2e.test_access import ask, until
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.up import DRIVERS, Up, condition, eventually

PAGE = Path(__file__).parents[2] / "docs" / "tenancy.md"
CLUSTERS = "/apis/provisioning.cattle.io/v1/namespaces/{}/clusters"
_FILE = re.compile(r"^```yaml\n# (\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def server() -> Iterator[Up]:
    found = Up()
    try:
        found.until(DRIVERS, "sim", lambda obj: condition(obj, "Active") == "True")
        yield found
    finally:
        found.stop()


class Shell:
    """A terminal whose commands are those of the page."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(self, lines: str, code: int = 0) -> str:
        remuda = f'remuda() {{ "{sys.executable}" -m remuda.cli.main "$@"; }}'
        done = subprocess.run(
            ["bash", "-e", "-c", f"{remuda}\n{lines}"],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == code, done
        return done.stdout + done.stderr


def test_tenancy_page_commands_set_up_tenant_with_cluster(server: Up, tmp_path: Path) -> None:
    text = PAGE.read_text()
    for name, content in _FILE.findall(text):
        (tmp_path / name).write_text(content)
    administrator, tenant = _COMMANDS.findall(text)
    shell = Shell(tmp_path, server.kubeconfig)
    shell.run(administrator)
    export, apply, scale, get, reach, delete = tenant.splitlines()
    alice = Shell(tmp_path, tmp_path / "alice.kubeconfig")
    alice.run(f"{export}\n{apply}\n{scale}")
    alice_config = tmp_path / "alice.kubeconfig"

    def has_all_machines() -> bool:
        return alice.run(get).count("prairie-servers") >= 3

    eventually(has_all_machines, lambda: server.diagnosis)
    made = server.http("GET", CLUSTERS.format("team-a") + "/prairie").body
    until(alice_config, f"/apis/management.cattle.io/v3/clusters/{made['status']['clusterName']}", 200)
    alice.run(reach)
    assert kubeconfig.load(tmp_path / "prairie.kubeconfig").server.endswith(made["status"]["clusterName"])
    # The proxy admits its owner; there is no server behind it, as the driver is `sim`.
    assert ask(tmp_path / "prairie.kubeconfig", "/api/v1/nodes").code == 503

    assert ask(alice_config, CLUSTERS.format("fleet-default")).code == 403
    assert ask(alice_config, "/api/v1/namespaces/team-a/secrets").code == 403
    assert ask(alice_config, "/api/v1/namespaces/team-a-credentials/secrets").code == 200
    shown = alice.run("remuda get resourcequotas -n team-a")
    assert "count/machines.cluster.x-k8s.io: 3/10" in shown
    larger = (tmp_path / "prairie.yaml").read_text().replace("quantity: 1", "quantity: 11")
    (tmp_path / "larger.yaml").write_text(larger)
    assert "this change adds 8, and the user may own 10" in alice.run("remuda apply -f larger.yaml", code=1)
    alice.run(delete)
