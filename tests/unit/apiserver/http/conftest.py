from __future__ import annotations

import pytest
import uvloop


@pytest.fixture(scope="session")
def event_loop_policy() -> uvloop.EventLoopPolicy:
    """The loop the server runs on in production."""
    return uvloop.EventLoopPolicy()
