"""Commands that are suggested instead of one that does not exist."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from remuda.cli.main import main
from remuda.kube.similar_names import did_you_mean, similar
from tests.lab import commands


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("cluster list", "get clusters"),
        ("clusters", "get clusters"),
        ("cluster ls", "get clusters"),
        ("list clusters", "get clusters"),
        ("ls", "get clusters"),
        ("cluster create prairie", "create cluster prairie"),
        ("cluster delete prairie", "delete cluster prairie"),
        ("destroy cluster prairie", "delete cluster prairie"),
        ("cluster show prairie", "describe cluster prairie"),
        ("cluster prairie", "describe cluster prairie"),
        ("show cluster prairie", "describe cluster prairie"),
        ("cluster upgrade prairie", "upgrade prairie"),
        ("cluster kubeconfig prairie", "get kubeconfig prairie"),
        ("kubeconfig prairie", "get kubeconfig prairie"),
        ("machine list", "get machines"),
        ("machine show prairie-1", "describe machine prairie-1"),
        ("machine delete prairie-1", "delete machine prairie-1"),
        ("machines list", "get machines"),
        ("ssh prairie-1", "machine ssh prairie-1"),
        ("nodedriver list", "get nodedrivers"),
        ("create prairie", "create cluster prairie"),
        ("logs prairie", "logs cluster prairie"),
        ("descrbe cluster prairie", "describe cluster prairie"),
        ("delte cluster prairie", "delete cluster prairie"),
    ],
)
def test_unknown_command_suggests_one_that_works(line: str, meant: str) -> None:
    done = CliRunner().invoke(main, line.split(), prog_name="remuda")
    assert done.exit_code == 2
    assert f"did you mean `remuda {meant}`" in done.output
    commands.check(f"remuda {meant}")


@pytest.mark.parametrize("line", ["descrbe cluster prairie", "describe clutser prairie"])
def test_suggestion_has_the_name_that_the_program_was_called_by(line: str) -> None:
    done = CliRunner().invoke(main, line.split(), prog_name="kubectl remuda")
    assert "did you mean `kubectl remuda describe cluster prairie`" in done.output


@pytest.mark.parametrize("line", ["rides", "banana split", "x"])
def test_unrelated_word_gets_no_suggestion(line: str) -> None:
    done = CliRunner().invoke(main, line.split(), prog_name="remuda")
    assert done.exit_code == 2
    assert "did you mean" not in done.output


def test_suggested_verbs_are_commands() -> None:
    from remuda.cli import near_matches

    known = main.list_commands(click.Context(main))
    assert set(near_matches._OUR_VERBS) <= set(known)
    assert not set(near_matches._VERBS) & set(known)


def test_similar_names_are_ordered_by_likeness_and_never_far_fetched() -> None:
    known = ["prairie-23", "prairie-2", "meadow", "fleet-prairie-workers", "up"]
    assert similar("prarie-2", known) == ["prairie-2", "prairie-23"]
    assert similar("Praiire-2", known)[0] == "prairie-2"
    assert similar("canyon", known) == similar("ux", known) == []
    assert did_you_mean(similar("prarie-2", known)) == "; did you mean prairie-2, prairie-23?"
    assert did_you_mean([]) == ""
