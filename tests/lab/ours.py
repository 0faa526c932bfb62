"""Our server, as a user starts it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab.children import die_with_parent
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port
from tests.lab.server import Server, end, tail


class Ours(Server):
    name = "ours"
    module = "remuda.cli.main"
    command = "apiserver"
    parent: Path | None = None  # of its folder; None: where temporary files are

    def __init__(self, *flags: str, ready_seconds: float = LIMIT_SECONDS) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="remuda-lab-ours-", dir=self.parent))
        self.log = self.folder / "apiserver.log"
        self.data = self.folder / "data"
        self._flags = ("--data-dir", str(self.data), "--listen", f"127.0.0.1:{free_port()}", *flags)
        try:
            self._run(ready_seconds)
            super().__init__(self.data / "admin.kubeconfig")
            self.wait_until_ready(self.process, ready_seconds, self.log)
        except BaseException:
            self._remove()
            raise

    def _run(self, ready_seconds: float) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, self.command, *self._flags],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=die_with_parent,
            )
        self._wait_for_the_line(ready_seconds)

    def kill(self) -> None:
        """Without a word, as a crash would."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def start_again(self, ready_seconds: float = LIMIT_SECONDS) -> None:
        """On the same data and the same port, after `kill`."""
        self._run(ready_seconds)
        self.wait_until_ready(self.process, ready_seconds, self.log)

    def _wait_for_the_line(self, seconds: float) -> None:
        assert self.process.stdout is not None
        started = time.monotonic()
        line = self.process.stdout.readline()
        if " ready at " not in line:
            self.process.wait(seconds)
            raise RuntimeError(f"our server did not start: {line}\n{tail(self.log)}")
        self.ready_after = time.monotonic() - started

    def _remove(self) -> None:
        end(self.process)
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        super().stop()
        self._remove()


class OursWithWebhookRecords(Ours):
    """The same server, which stores webhook configurations though nobody is called: for those who register some."""

    module = "tests.lab.webhook_records"
