"""Colours are for terminals, and for who has not declined."""

from __future__ import annotations

import click
import pytest

from remuda.cli.progress import READY, Frames


@pytest.mark.parametrize("declined", ["", "1"])
def test_no_color_disables_colours_but_keeps_cursor_control(
    declined: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", declined)
    frames = Frames("Cluster prairie", READY, None)
    frames._put([click.style("waiting", fg="yellow")])
    frames.close()
    shown = capsys.readouterr().err
    assert "waiting" in shown
    assert "\x1b[K" in shown
    assert ("\x1b[33m" in shown) == (not declined)
