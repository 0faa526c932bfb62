"""The same examples in every run: what `derandomize` promises, and does not keep by itself.

Hypothesis also draws constants that it finds in whatever modules are imported, so which examples a test gets depends
on the tests before it. For a test whose examples cost seconds that means: green here, red there.
"""

from __future__ import annotations

import pytest
from hypothesis.internal.conjecture import providers


@pytest.fixture
def repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(providers, "_get_local_constants"):
        empty = providers.Constants()
        monkeypatch.setattr(providers, "_get_local_constants", lambda: empty)
