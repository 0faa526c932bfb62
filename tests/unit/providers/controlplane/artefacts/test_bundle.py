"""nano's bundle: the same bytes every time, and all that nano needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from remuda.providers.controlplane.artefacts import nano_bundles
from tests.lab.limits import LIMIT_SECONDS

BUILD = "import sys, pathlib; from remuda.providers.controlplane.artefacts import nano_bundles; "
BUILD += "nano_bundles.build('v1.36.4+nano7', pathlib.Path(sys.argv[1]))"


def test_nano_bundle_is_reproducible_and_self_contained(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    nano_bundles.build("v1.36.4+nano7", first)
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", BUILD, str(second)], env=environment, check=True, timeout=LIMIT_SECONDS)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 30_000_000

    home = tmp_path / "home"
    with tarfile.open(first) as archive:
        archive.extractall(home)  # its own bytes; Pythons before 3.11.4 know no filter
    (tmp_path / "nano").symlink_to(home / "bin/nano")
    # The Python beneath this one has none of our packages.
    base = os.path.dirname(getattr(sys, "_base_executable", sys.executable))
    clean = {"PATH": f"{base}:/usr/bin:/bin", "PYTHONPATH": "/nowhere"}
    said = subprocess.run(
        [tmp_path / "nano", "--version"], env=clean, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert "v1.36.4+nano7" in said.stdout, said
    names = {path.name for path in (home / "bin").iterdir()}
    assert {"nano", "nano-killall.sh", "nano-uninstall.sh"} <= names


def test_launcher_reports_missing_python_version(tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "nano"
    launcher.parent.mkdir()
    text = Path(nano_bundles.__file__).with_name("nano.sh").read_text().replace("@PYTHON@", "3.2")
    launcher.write_text(text)
    launcher.chmod(0o755)
    said = subprocess.run([launcher, "server"], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert said.returncode == 127
    assert "needs Python 3.2" in said.stderr
