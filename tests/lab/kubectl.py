"""The real kubectl on a kubeconfig."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lab.children import die_with_parent


class Kubectl:
    def __init__(self, command: Sequence[str], kubeconfig: Path, home: Path) -> None:
        """`command`: the program, and what stands before its words."""
        self.kubeconfig = kubeconfig
        self._command = [*command, "--kubeconfig", str(kubeconfig), "--cache-dir", str(home / "cache")]

    def __call__(self, *words: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*self._command, *words], input=stdin, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"kubectl {' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, *words: str) -> subprocess.Popen[str]:
        """What goes on until it ends, or is ended."""
        return subprocess.Popen(
            [*self._command, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent,
        )

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[str]:
        """The address on this machine that leads to a port of the target, for as long as it is wanted."""
        process = self.start("port-forward", target, f":{port}", "--address", "127.0.0.1")
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
