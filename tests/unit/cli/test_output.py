"""Tables as people see them."""

from __future__ import annotations

from remuda.cli.output import NOTHING, fitting, table

HEADS = ("NAMESPACE", "NAME", "CLUSTER", "OBJECT", "READY", "AGE")
ROW = ("fleet-default", "prairie-workers-1", "prairie", NOTHING, "True", "5m")


def shown(width: int) -> list[str]:
    return [HEADS[at] for at in fitting(HEADS, [ROW], width)]


def test_table_omits_empty_columns() -> None:
    assert shown(200) == ["NAMESPACE", "NAME", "CLUSTER", "READY", "AGE"]


def test_narrow_table_keeps_most_important_columns_in_order() -> None:
    assert shown(50) == ["NAMESPACE", "NAME", "READY", "AGE"]
    assert shown(10) == ["NAME"]


def test_table_never_exceeds_terminal_width() -> None:
    for width in range(20, 120):
        which = fitting(HEADS, [ROW], width)
        text = table([HEADS[at] for at in which], [[ROW[at] for at in which]])
        assert max(map(len, text.splitlines())) <= width


def test_narrow_table_truncates_trailing_message_column() -> None:
    heads, row = ("LAST SEEN", "OBJECT", "MESSAGE"), ("5m", "machine/prairie-1", "it is so " * 20)
    which = fitting(heads, [row], 60)
    assert which == [0, 1, 2]
    assert table(heads, [row], 60).splitlines()[1].endswith("…")
