"""Each server is started once for all interop tests."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.interop.semantics.trial import Lab
from tests.lab import Ours, Upstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def ours() -> Iterator[Ours]:
    server = Ours()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def run_tag() -> str:
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz") for _ in range(5))


@pytest.fixture(scope="session")
def upstream_lab(upstream: Upstream, run_tag: str) -> Lab:
    return Lab(upstream, run_tag)


@pytest.fixture(scope="session")
def our_lab(ours: Ours, run_tag: str) -> Lab:
    return Lab(ours, run_tag)
