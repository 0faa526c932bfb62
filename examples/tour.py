"""The tour (`make demo`): a Kubernetes API from nothing, then a cluster on it that is made, changed and deleted.

Needs nothing but Remuda itself. Everything happens in a temporary directory and on loopback; servers are simulated, all
else is what `remuda` runs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import engine
import herd
from stage import DIM, PLAIN


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="remuda-tour-") as folder:
        engine.tour(Path(folder) / "engine")
        herd.tour(Path(folder) / "herd")
    print(f"\n{DIM}The tour took {time.monotonic() - began:.0f} s. Yours:")
    print("  .venv/bin/remuda up --data-dir ./data")
    print("  .venv/bin/python -m remuda.simulator --kubeconfig ./data/admin.kubeconfig --cloud ./cloud")
    print(f"  kubectl --kubeconfig ./data/admin.kubeconfig apply -f examples/cluster.yaml{PLAIN}")


if __name__ == "__main__":
    main()
