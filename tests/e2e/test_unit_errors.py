"""A server whose program refuses to start, on hosts that are processes: users read the program's own error."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.lab.clusters import NAMESPACE, DeclaredCluster, Fleet, pool

ERROR = "kube-controller-manager-arg: node-monitor-grace-period=soon is not a duration such as 40s"


def test_why_shows_startup_error_of_failed_server(fleet: Fleet, tmp_path: Path) -> None:
    cluster = DeclaredCluster(fleet, "lame", [pool("all", 1, "ecw")])
    cluster.config["machineGlobalConfig"] = {"kube-controller-manager-arg": ["node-monitor-grace-period=soon"]}
    try:
        cluster.apply()
        cluster.until(lambda: ERROR in cluster.why()[1], "remuda why shows the error of the program")
        code, told = cluster.why()
        assert code != 0
        assert f"; nano is activating: nano server: {ERROR}" in " ".join(told.split())
        assert "waiting for probes: " in told
        bundle = tmp_path / "bundle.tar.gz"
        assert fleet.remuda("diagnose", "lame", "-n", NAMESPACE, "-o", str(bundle)).returncode == 0
        with tarfile.open(bundle) as archive:
            plans = [archive.extractfile(one) for one in archive.getmembers() if "/plans/" in one.name]
            assert any(ERROR in " ".join(file.read().decode().split()) for file in plans if file is not None)

        cluster.config["machineGlobalConfig"] = {}
        cluster.apply()
        cluster.has_nodes(1)
        cluster.until(lambda: cluster.why() == (0, "Cluster lame is ready\n"), "remuda why reports that it is ready")
    finally:
        cluster.delete()
    cluster.leaves_nothing()
