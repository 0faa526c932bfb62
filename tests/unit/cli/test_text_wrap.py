"""What is told to people keeps to their terminal, and says what they probably meant."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from remuda.cli import text_wrap
from remuda.cli.main import main
from remuda.cli.output import table_with_reasons
from remuda.cli.text_wrap import wrapped
from remuda.cli.timeline_text import timeline_lines
from remuda.provisioning.timeline import Timeline, TimelineEvent

SENTENCE = "there is no cluster nope. `remuda get clusters` lists the existing ones"


def test_long_sentence_wraps_between_words() -> None:
    lines = wrapped(SENTENCE, 40)
    assert " ".join(lines) == SENTENCE
    assert max(map(len, lines)) <= 40 < len(SENTENCE)


def test_short_or_piped_text_is_not_wrapped() -> None:
    assert wrapped("a\n  b   c", 80) == ["a", "  b   c"]
    assert wrapped(SENTENCE * 9, None) == [SENTENCE * 9]


def test_wrapped_lines_keep_indentation_and_prefix() -> None:
    assert wrapped("  one two three four five six seven", 30, "> ") == [">   one two three four five", ">   six seven"]


def test_long_path_is_split_only_without_whole_words() -> None:
    path = "/" + "a" * 60
    assert path in wrapped(f"{path} is not there", 40)
    assert max(map(len, wrapped(f"{path} is not there", 40, whole_words=False))) <= 40


def test_wrapped_error_width_includes_error_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_wrap, "errors_width", lambda: 40)
    told = "Error: " + text_wrap.fit(click.ClickException(SENTENCE)).format_message()
    assert told.replace("\n", " ") == f"Error: {SENTENCE}"
    assert max(map(len, told.splitlines())) <= 40


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gte clusters", "did you mean `main get clusters`?"),
        ("machine shs x", "did you mean `main machine ssh x`?"),
        ("user paint x", "the commands are create, delete, disable, enable, list"),
        ("describe prairie", "did you mean `main describe cluster prairie`?"),
        ("--kubeconfig x get clusters", "put options after the command"),
    ],
)
def test_mistyped_command_error_suggests_correction(line: str, said: str) -> None:
    done = CliRunner().invoke(main, line.split())
    assert done.exit_code == 2
    assert said in done.output


def test_narrow_table_prints_reasons_below_rows() -> None:
    rows = [("1", "prairie-workers-7x2kq", "config key node-label"), ("-", "prairie-servers-abcde", "")]
    heads = ("TURN", "MACHINE", "WHY")
    assert all("\n" not in text for text in table_with_reasons(heads, rows, 80))
    head, first, second = table_with_reasons(heads, rows, 40)
    assert "WHY" not in head
    assert first.split("\n") == ["1      prairie-workers-7x2kq", "       config key node-label"]
    assert second == "-      prairie-servers-abcde"


def test_narrow_timeline_prints_description_on_next_line() -> None:
    moment = TimelineEvent(
        time="2026-01-02T03:04:05Z", kind="RKEBootstrap", name="prairie-workers-7x2kq", what="PlanDelivered: first"
    )
    found = Timeline(cluster="fleet-default/prairie", moments=[moment], machines=())
    assert timeline_lines(found, width=60)[1:] == [
        "03:04:05    RKEBootstrap prairie-workers-7x2kq",
        "          PlanDelivered: first",
    ]
    assert timeline_lines(found, width=90)[1:] == [
        "03:04:05    RKEBootstrap prairie-workers-7x2kq  PlanDelivered: first"
    ]
