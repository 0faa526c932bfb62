"""The recording that the README shows, docs/demo.svg: `make demo` as it really ran on a terminal of eighty columns.

    python -m tests.lab.recording            runs the demo and writes the recording anew

It is one file that browsers play: each distinct screen is a picture in a strip, and the strip is moved. Pauses are cut
to a second; nothing else is changed, so what is shown is what was printed.
"""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import pyte

from tests.lab.terminal import COLUMNS, LINES, Session

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "demo.svg"
_DEMO_SECONDS = 600.0
_LOOK_SECONDS = 0.1
_LONGEST, _SHORTEST, _LAST = 1.0, 0.15, 8.0  # seconds that a screen is shown
_WIDTH, _HEIGHT, _MARGIN = 8.4, 18, 12  # of a character, of a line, and around all of it
_COLOURS = {"default": "#d8dee9", "green": "#8fbf7f", "red": "#e07a7a", "brown": "#e5c07b", "cyan": "#7fb8c9"}
_BACKGROUND = "#1d2430"
_TOGETHER = re.compile(r"\S+(?: \S+)*")


class Run(NamedTuple):
    """Characters of one look, next to each other."""

    column: int
    text: str
    colour: str
    bold: bool


Line = tuple[Run, ...]
Screen = tuple[Line, ...]


class Shown(NamedTuple):
    seconds: float
    screen: Screen


def record(words: Sequence[str], env: dict[str, str]) -> tuple[list[Shown], int]:
    """Every screen with the time it was there for, and how the program ended."""
    terminal = pyte.Screen(COLUMNS, LINES)
    stream = pyte.Stream(terminal)
    found: list[tuple[float, Screen]] = []
    read = 0
    with Session(words, env=env, cwd=ROOT) as session:
        began = time.monotonic()
        going = True
        while going and time.monotonic() - began < _DEMO_SECONDS:
            going = session.listen(_LOOK_SECONDS)
            stream.feed(session.shown[read:].replace("\n", "\r\n"))
            read = len(session.shown)
            screen = look(terminal)
            if not found or found[-1][1] != screen:
                found.append((time.monotonic(), screen))
        code = session.end(seconds=5)
    times = [when for when, _ in found]
    pauses = [later - before for before, later in itertools.pairwise(times)]
    return [Shown(*one) for one in zip([*pauses, _LAST], (screen for _, screen in found), strict=True)], code


def look(terminal: pyte.Screen) -> Screen:
    return tuple(tuple(_runs(terminal.buffer[number])) for number in range(terminal.lines))


def _runs(cells: pyte.screens.StaticDefaultDict) -> Iterator[Run]:
    """Each put where it stands, however wide the spaces before it are drawn."""
    for style, group in itertools.groupby(range(COLUMNS), lambda column: _style(cells[column])):
        columns = list(group)
        text = "".join(cells[column].data for column in columns)
        for found in _TOGETHER.finditer(text):
            yield Run(columns[0] + found.start(), found[0], *style)


def _style(cell: pyte.screens.Char) -> tuple[str, bool]:
    return cell.fg if cell.fg in _COLOURS else "default", bool(cell.bold)


def draw(shown: Sequence[Shown]) -> str:
    """As SVG."""
    paced = [(min(max(one.seconds, _SHORTEST), _LONGEST), one.screen) for one in shown[:-1]] + [
        (_LAST, shown[-1].screen)
    ]
    lines = sorted({line for _, screen in paced for line in screen if line})
    names = {line: f"l{number}" for number, line in enumerate(lines)}
    width, height = round(COLUMNS * _WIDTH + 2 * _MARGIN), LINES * _HEIGHT + 2 * _MARGIN
    whole = sum(seconds for seconds, _ in paced)
    passed, moves = 0.0, []
    for number, (seconds, _) in enumerate(paced):
        moves.append(f"{100 * passed / whole:.3f}%{{transform:translateX({-number * width}px)}}")
        passed += seconds
    style = (
        "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
        + "".join(f".{name}{{fill:{value}}}" for name, value in _COLOURS.items())
        + ".b{font-weight:bold}"
        + f"#strip{{animation:play {whole:.1f}s steps(1,end) infinite}}"
        + f"@keyframes play{{{''.join(moves)}}}"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
            "<title>make demo: from nothing to a cluster that is changed in place</title>",
            f"<style>{style}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{_BACKGROUND}"/>',
            "<defs>",
            *(f'<text id="{names[line]}">{"".join(map(_run, line))}</text>' for line in lines),
            "</defs>",
            '<g id="strip">',
            *(_frame(number * width, screen, names) for number, (_, screen) in enumerate(paced)),
            "</g>",
            "</svg>\n",
        ]
    )


def _run(run: Run) -> str:
    wide = len(run.text) * _WIDTH
    look = f"{run.colour}{' b' if run.bold else ''}"
    return f'<tspan class="{look}" x="{run.column * _WIDTH:.1f}" textLength="{wide:.1f}">{escape(run.text)}</tspan>'


def _frame(left: int, screen: Screen, names: dict[Line, str]) -> str:
    uses = "".join(f'<use href="#{names[line]}" y="{number * _HEIGHT}"/>' for number, line in enumerate(screen) if line)
    return f'<g transform="translate({left + _MARGIN},{_MARGIN + 13})">{uses}</g>'


def main() -> int:
    shown, code = record(["make", "--silent", "demo"], {"DEMO_DRIVER": "process", "DEMO_EXIT": "1"})
    if code:
        print("\n".join("".join(run.text for run in line) for line in shown[-1].screen), file=sys.stderr)
        print(f"the demo has ended with {code}: nothing is written", file=sys.stderr)
        return 1
    TARGET.write_text(draw(shown))
    print(f"{TARGET.relative_to(ROOT)}: {len(shown)} screens, {TARGET.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
