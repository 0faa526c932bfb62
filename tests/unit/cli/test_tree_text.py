"""The tree of a cluster as text: within a width, within a height, what holds it up always seen."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.tree_text import MARK, chain_lines, lines, span
from remuda.kube import clock
from remuda.provisioning.tree import Branch, Judgement

THEN = "2026-01-02T03:04:05Z"
NOW = clock.parse(THEN) + 83
LONG = (
    "Machine fleet-default/prairie-servers-1: creating the server of ProcessMachine fleet-default/prairie-servers-1 "
    f"(since {THEN}); its server comes up by itself; see remuda machine logs prairie-servers-1"
)


def thing(kind: str, name: str, *below: Branch, message: str = "", note: str = "") -> Branch:
    waiting = message or any(not one.well for one in below)
    judgement = Judgement(state="waiting", reason="NotReady", message=message or "not yet", since=THEN)
    return Branch(
        kind=kind, name=name, note=note, judgement=judgement if waiting else Judgement(state="well"), branches=below
    )


def cluster_tree(workers: int = 2, message: str = LONG) -> Branch:
    server = thing("ProcessMachine", "prairie-servers-1", message=message)
    servers = thing(
        "MachineDeployment", "prairie-servers", thing("Machine", "prairie-servers-1", server), note="1 of 1"
    )
    ready = [
        thing("Machine", f"prairie-workers-{n}", thing("ProcessMachine", f"prairie-workers-{n}"), note="v1.36.4+nano1")
        for n in range(workers)
    ]
    pool = thing("MachineDeployment", "prairie-workers", *ready, note=f"{workers} of {workers}")
    return thing("Cluster", "prairie", thing("Cluster", "prairie", servers, pool), note="v1.36.4+nano1")


def drawn(root: Branch, width: int | None = None, height: int | None = None) -> list[str]:
    return [click.unstyle(line) for line in lines(root, width=width, height=height, now=NOW)]


def test_tree_draws_branches_with_message_below_blocking_object() -> None:
    assert drawn(cluster_tree(workers=1, message="no image")) == [
        "  Cluster prairie                               v1.36.4+nano1  waiting 1m23s  NotReady",
        "  └─ Cluster prairie                                           waiting 1m23s  NotReady",
        "     ├─ MachineDeployment prairie-servers       1 of 1         waiting 1m23s  NotReady",
        "     │  └─ Machine prairie-servers-1                           waiting 1m23s  NotReady",
        "»    │     └─ ProcessMachine prairie-servers-1                 waiting 1m23s  NotReady",
        "     │            no image",
        "     └─ MachineDeployment prairie-workers       1 of 1         ready",
        "        └─ Machine prairie-workers-0            v1.36.4+nano1  ready",
        "           └─ ProcessMachine prairie-workers-0                 ready",
    ]


def test_piped_tree_is_not_truncated() -> None:
    assert any(LONG in line for line in drawn(cluster_tree()))


@pytest.mark.parametrize("width", [80, 60, 100])
def test_tree_never_exceeds_terminal_width(width: int) -> None:
    assert max(map(len, drawn(cluster_tree(), width))) <= width


@given(st.integers(0, 40), st.integers(60, 120), st.integers(8, 40))
def test_tree_fits_any_terminal_and_shows_blocking_object(workers: int, width: int, height: int) -> None:
    found = drawn(cluster_tree(workers), width, height)
    assert len(found) <= height
    assert max(map(len, found)) <= width
    assert sum(line.startswith(MARK) for line in found) == 1


def test_tree_folds_ready_objects_first_and_counts_folded_objects() -> None:
    found = drawn(cluster_tree(workers=12), 80, 16)
    assert any("ProcessMachine prairie-servers-1" in line for line in found)
    assert any("more, ready" in line for line in found)
    assert not any("prairie-workers-3" in line for line in found)


def test_fitting_tree_is_not_folded() -> None:
    assert drawn(cluster_tree(), 80, 40) == drawn(cluster_tree(), 80)


def test_blocking_chain_ends_with_next_step_of_last_object() -> None:
    found = chain_lines(cluster_tree(), now=NOW)
    assert click.unstyle(found[0]) == "Cluster prairie  waiting for 1m23s  NotReady"
    assert [click.unstyle(line).strip("└─ ").split("  ")[0] for line in found[:5]] == [
        "Cluster prairie",
        "Cluster prairie",
        "MachineDeployment prairie-servers",
        "Machine prairie-servers-1",
        "ProcessMachine prairie-servers-1",
    ]
    assert found[-1] == "next: the controller: its server comes up by itself; see remuda machine logs prairie-servers-1"


def test_blocking_chain_fits_terminal_width() -> None:
    assert max(len(click.unstyle(line)) for line in chain_lines(cluster_tree(), width=80, now=NOW)) <= 80


def test_ready_cluster_has_no_blocking_chain() -> None:
    assert chain_lines(thing("Cluster", "prairie"), now=NOW) == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (60, "1m"), (83, "1m23s"), (7500, "2h5m"), (273600, "3d4h")]
)
def test_durations_are_formatted_with_at_most_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_of_tree_is_cut(width: int) -> None:
    long = "-".join(["prairie"] * 9)
    root = thing("Cluster", "prairie", thing("Machine", long, note="v1.36.4+nano1", message=LONG), note="v1.36.4+nano1")
    for found in (drawn(root, width), drawn(root, width, 40)):
        assert not any("…" in line for line in found)
        assert max(map(len, found)) <= max(width, 54)  # as narrow as its columns can be
        text = "".join("".join(found).split()).replace("│", "")
        assert long in text
        assert "".join(LONG.split()) in text
