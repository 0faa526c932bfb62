"""The real kubectl on a kubeconfig."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.lab.children import die_with_parent
from tests.lab.clusters import DeclaredCluster
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.peers import require_peer

_STREAMS = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")


class Kubectl:
    def __init__(self, command: Sequence[str], kubeconfig: Path, home: Path) -> None:
        """`command`: the program, and what stands before its words."""
        self.kubeconfig = kubeconfig
        self._command = [*command, "--kubeconfig", str(kubeconfig), "--cache-dir", str(home / "cache")]
        self._environment = dict(os.environ)

    def __call__(self, *words: str, stdin: str = "") -> str:
        return self.pipe(stdin.encode(), *words).decode()

    def pipe(self, stdin: bytes, *words: str) -> bytes:
        done = subprocess.run(
            [*self._command, *words],
            input=stdin,
            capture_output=True,
            timeout=2 * LIMIT_SECONDS,
            check=False,
            env=self._environment,
        )
        said = (done.stdout + done.stderr)[-4000:].decode(errors="replace")
        assert done.returncode == 0, f"kubectl {' '.join(words)}: exit {done.returncode}\n{said}"
        return done.stdout

    def by(self, protocol: str) -> Kubectl:
        """The same, whose streams are WebSockets (`websocket`), as they are anyway, or SPDY (`spdy`), as they were."""
        other = copy.copy(self)
        other._environment = {**os.environ, **dict.fromkeys(_STREAMS, "false" if protocol == "spdy" else "true")}
        return other

    def works(self, *words: str, stdin: str = "") -> bool:
        try:
            self(*words, stdin=stdin)
        except (AssertionError, subprocess.TimeoutExpired):
            return False
        return True

    def start(self, *words: str) -> subprocess.Popen[str]:
        """What goes on until it ends, or is ended."""
        return subprocess.Popen(
            [*self._command, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
            preexec_fn=die_with_parent,
        )

    @contextmanager
    def saying(self, *words: str) -> Iterator[IO[str]]:
        """What it prints, for as long as it is wanted."""
        process = self.start(*words)
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[str]:
        """The address on this machine that leads to a port of the target, for as long as it is wanted."""
        with self.saying("port-forward", target, f":{port}", "--address", "127.0.0.1") as said:
            line = said.readline()  # the end of the program is the end of the line
            found = re.search(r"127\.0\.0\.1:\d+", line)
            assert found is not None, line
            yield f"http://{found[0]}/"


@contextmanager
def granted(cluster: DeclaredCluster, user: str, folder: Path, role: str = "cluster-owner") -> Iterator[Kubectl]:
    """As a user has it who was granted the cluster: through the proxy. It works; in the end there is no such user."""
    (program,) = require_peer("kubectl")
    for words in (("user", "create", user), ("grant", user, cluster.name, role)):
        _done(cluster, *words)
    path = folder / f"{user}.kubeconfig"
    path.write_text(_done(cluster, "get", "kubeconfig", cluster.name, "--user", user, "--embed-token"))
    kubectl = Kubectl([str(program)], path, folder)
    try:
        cluster.until(lambda: kubectl.works("get", "nodes"), f"the grant of {user} has reached the cluster")
        yield kubectl
    finally:
        _done(cluster, "user", "delete", user)


def _done(cluster: DeclaredCluster, *words: str) -> str:
    done = cluster.fleet.remuda(*words)
    assert done.returncode == 0, f"remuda {' '.join(words)}: {done.stderr}"
    return done.stdout
