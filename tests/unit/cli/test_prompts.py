"""Defaults of the prompts of `remuda create cluster`."""

from __future__ import annotations

from remuda.cli.prompts import free_name


def test_offered_name_is_one_that_no_cluster_has() -> None:
    assert free_name(()) == "prairie"
    taken: set[str] = set()
    for _ in range(9):
        taken.add(free_name(taken))
    assert len(taken) == 9
    assert "prairie-2" in taken
