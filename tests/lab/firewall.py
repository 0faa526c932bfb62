"""Firewall before the hosts on a bridge of this machine: iptables rules that are removed again one by one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.limits import LIMIT_SECONDS
from tests.lab.missing import missing

Rule = tuple[str, ...]


def require_firewall() -> None:
    """Skip or fail the test if this machine has no iptables."""
    if shutil.which("iptables", path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
        missing("a firewall needs iptables; install with: interop/packages hosts")


class Firewall:
    """Before the hosts on one bridge: `closed` lets nothing begin from here, answers do get through; `cut` lets nothing
    through at all."""

    def __init__(self, bridge: str) -> None:
        self._new = [("OUTPUT", "-o", bridge, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP")]
        self._all = [("OUTPUT", "-o", bridge, "-j", "DROP"), ("INPUT", "-i", bridge, "-j", "DROP")]

    @contextmanager
    def closed(self) -> Iterator[None]:
        with _inserted(self._new):
            yield

    @contextmanager
    def cut(self) -> Iterator[None]:
        with _inserted(self._all):
            yield


@contextmanager
def _inserted(rules: list[Rule]) -> Iterator[None]:
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
