"""Tables as people see them."""

from __future__ import annotations

from remuda.cli.output import NOTHING, fitting, table

HEADS = ("NAMESPACE", "NAME", "CLUSTER", "OBJECT", "READY", "AGE")
ROW = ("fleet-default", "prairie-workers-1", "prairie", NOTHING, "True", "5m")


def shown(width: int) -> list[str]:
    return [HEADS[at] for at in fitting(HEADS, [ROW], width)]


def test_columns_of_which_nothing_is_known_are_not_shown() -> None:
    assert shown(200) == ["NAMESPACE", "NAME", "CLUSTER", "READY", "AGE"]


def test_where_there_is_little_room_what_tells_most_stays_in_its_order() -> None:
    assert shown(50) == ["NAMESPACE", "NAME", "READY", "AGE"]
    assert shown(10) == ["NAME"]


def test_columns_that_fit_are_as_wide_as_the_terminal_at_most() -> None:
    for width in range(20, 120):
        which = fitting(HEADS, [ROW], width)
        text = table([HEADS[at] for at in which], [[ROW[at] for at in which]])
        assert max(map(len, text.splitlines())) <= width


def test_sentences_at_the_end_are_cut_and_not_left_out() -> None:
    heads, row = ("LAST SEEN", "OBJECT", "MESSAGE"), ("5m", "machine/prairie-1", "it is so " * 20)
    which = fitting(heads, [row], 60)
    assert which == [0, 1, 2]
    assert table(heads, [row], 60).splitlines()[1].endswith("…")
