"""`make demo-clean` removes the demo, and nothing of clusters that the user created on its management plane."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.program import COMMAND
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.rancher_manifests import FOLDER

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_demo_clean_refuses_while_other_clusters_exist(tmp_path: Path) -> None:
    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "KUBECONFIG": str(tmp_path / "remuda-demo" / "admin.kubeconfig")}
        return subprocess.run(
            [*map(str, words)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    up = (*COMMAND, "up", "--detach", "--data-dir", "remuda-demo", "--listen", "127.0.0.1:0")
    try:
        assert run(*up).returncode == 0
        assert run(*COMMAND, "apply", "-f", FOLDER / "k3s-custom-minimal.yaml").returncode == 0
        refused = run(sys.executable, DEMO, "clean")
        assert refused.returncode == 1, refused
        assert "clusters that the demo did not create. Nothing was removed:\n  fleet-default/cabin: 0 machines\n" in (
            refused.stdout
        )
        assert "delete cluster cabin -n fleet-default\n" in refused.stdout
        assert run(*COMMAND, "get", "clusters", "-o", "name").stdout == "cluster.provisioning.cattle.io/cabin\n"
        assert run(*COMMAND, "delete", "cluster", "cabin", "-n", "fleet-default").returncode == 0
        cleaned = run(sys.executable, DEMO, "clean")
        assert cleaned.returncode == 0, cleaned
        assert not (tmp_path / "remuda-demo").exists()
    finally:
        run(*COMMAND, "down", "--data-dir", "remuda-demo")
