"""What a test needs and this machine has not."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(text: str) -> NoReturn:
    """Ends the test: it skips and says why; in CI it fails, because what did not run must not look like what passed."""
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)
