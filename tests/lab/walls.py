"""What a firewall does to hosts on a bridge of this machine, by rules that are taken away again one by one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.limits import LIMIT_SECONDS
from tests.lab.missing import missing

Rule = tuple[str, ...]


def require_walls() -> None:
    """This machine can have them, or the end of this test."""
    if shutil.which("iptables", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        missing("a firewall needs iptables; install with: interop/packages hosts")


class Wall:
    """Before the hosts on one bridge: `closed` lets nothing begin from here, answers do get through; `cut` lets nothing
    through at all."""

    def __init__(self, bridge: str) -> None:
        self._new = [("OUTPUT", "-o", bridge, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP")]
        self._all = [("OUTPUT", "-o", bridge, "-j", "DROP"), ("INPUT", "-i", bridge, "-j", "DROP")]

    @contextmanager
    def closed(self) -> Iterator[None]:
        with _standing(self._new):
            yield

    @contextmanager
    def cut(self) -> Iterator[None]:
        with _standing(self._all):
            yield


@contextmanager
def _standing(rules: list[Rule]) -> Iterator[None]:
    made: list[Rule] = []
    try:
        for rule in rules:
            _iptables("-I", rule)
            made.append(rule)
        yield
    finally:
        for rule in made:
            _iptables("-D", rule)


def _iptables(what: str, rule: Rule) -> None:
    subprocess.run(["iptables", "-w", what, *rule], check=True, capture_output=True, timeout=LIMIT_SECONDS)
