"""Which files of a suite come first. Each is run by one worker as a whole: the one that takes longest must not be the
last to be begun. xdist keeps this order with --no-loadscope-reorder; by itself it begins with the most tests."""

from __future__ import annotations

import pytest


def first(items: list[pytest.Item], *files: str) -> None:
    """Those, in this order; then the others, as they were."""

    def place(item: pytest.Item) -> int:
        return next((number for number, file in enumerate(files) if item.path.match(file)), len(files))

    items.sort(key=place)
