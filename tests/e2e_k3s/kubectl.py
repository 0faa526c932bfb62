"""The real kubectl on the cluster's own kubeconfig."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.children import die_with_parent


class Kubectl:
    def __init__(self, program: Path, kubeconfig: Path, home: Path) -> None:
        self._command = [str(program), "--kubeconfig", str(kubeconfig), "--cache-dir", str(home / "cache")]

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self._command, *words], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[str]:
        """The address on this machine that leads to a port of the target, for as long as it is wanted."""
        process = subprocess.Popen(
            [*self._command, "port-forward", target, f":{port}", "--address", "127.0.0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()  # the end of the program is the end of the line
            found = re.search(r"127\.0\.0\.1:\d+", line)
            assert found is not None, line
            yield f"http://{found[0]}/"
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
