"""Interface of the component that runs units on hosts that are folders, where systemd runs nothing for the agent.

The agent does not contain an implementation. The program that starts the agent passes one, if it has one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol


class Units(Protocol):
    def watch(self, root: str, address: str, stop: threading.Event) -> None:
        """Install `systemctl` below the root, and keep wanted units running, in the background, until `stop`."""

    def forget(self, root: str) -> None:
        """Delete the state of all units, unless some are still wanted."""

    def systemctl(self, root: str, words: Sequence[str]) -> int:
        """Run `systemctl` with these words and return its exit code."""

    def keep(self, root: str, unit: str) -> int:
        """Keep one unit running until told to end it. Return the exit code."""
