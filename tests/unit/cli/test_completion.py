"""What shells complete, as a shell asks for it: by a process, and through bash itself."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from remuda.cli.main import main
from remuda.kube import kubeconfig
from tests.lab.limits import LIMIT_SECONDS


def complete(line: str, shell: str = "bash", **environment: str) -> subprocess.CompletedProcess[str]:
    """What follows the last word of a line; a blank at its end begins a new one."""
    words = line.split()
    at = len(words) - (0 if line.endswith(" ") else 1)
    asked = {"_REMUDA_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(at)}
    if shell == "fish":
        asked["COMP_CWORD"] = "" if line.endswith(" ") else words[-1]
    return subprocess.run(
        [sys.executable, "-c", "from remuda.cli.main import main; main(prog_name='remuda')"],
        env={**os.environ, **asked, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_commands_and_options_in_each_shell(shell: str) -> None:
    found = complete("remuda d", shell)
    assert (found.returncode, found.stderr) == (0, "")
    for name in ("describe", "delete", "diagnose", "drivers"):
        assert name in found.stdout
    assert "--kubernetes-version" in complete("remuda upgrade prairie --ku", shell).stdout
    assert "nspawn" in complete("remuda generate cluster c --flavor n", shell).stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_invokes_remuda_for_its_shell(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_REMUDA_COMPLETE={shell}_complete" in result.output


def test_bash_completion_script_completes_a_command(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    (tmp_path / "remuda").symlink_to(Path(sys.executable).with_name("remuda"))
    script = (
        f"PATH={tmp_path}:$PATH; source <(remuda completion bash); COMP_WORDS=(remuda des); COMP_CWORD=1; "
        '_remuda_completion remuda; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert (done.stdout, done.stderr) == ("describe\n", "")


def test_completion_times_out_silently_on_unresponsive_server(tmp_path: Path) -> None:
    path = tmp_path / "k"
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        kubeconfig.write(path, kubeconfig.build(f"https://127.0.0.1:{deaf.getsockname()[1]}"))
        began = time.monotonic()
        found = complete("remuda describe cluster ", KUBECONFIG=str(path))
        took = time.monotonic() - began
    began = time.monotonic()
    complete("remuda describe ")
    assert (found.returncode, found.stdout.strip(), found.stderr) == (0, "", "")
    # Sixty seconds, if it were waited for. On a slow machine most of the time goes into the start of the program.
    assert took < 40 + 5 * (time.monotonic() - began)


@pytest.mark.parametrize("text", ["", "{", "apiVersion: v1\nkind: Config\ncurrent-context: none\n"])
def test_completion_ignores_invalid_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    found = complete("remuda get machines ", KUBECONFIG=str(path))
    assert (found.returncode, found.stdout.strip(), found.stderr) == (0, "", "")


def test_completion_offers_options_of_the_chosen_driver() -> None:
    found = complete("remuda create cluster c --driver amazonec2 --option ami=x --option i", "bash").stdout
    assert "instanceType=" in found
    assert "region=" not in found
    assert "ami=" not in complete("remuda create cluster c --driver amazonec2 --option ami=x --option ", "bash").stdout
    assert complete("remuda create cluster c --driver wings --option ", "bash").stdout.strip() == ""
