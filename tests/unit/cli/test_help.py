"""What every command says of itself: an example, its options, in eighty columns; and quickly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from remuda.cli.main import main
from tests.lab import commands
from tests.lab.limits import LIMIT_SECONDS

_WIDTH = 80
_AT_ONCE = 0.12  # seconds
_TIMES_PYTHON = 10  # as long as Python alone takes to start
_HEAVY = ("aiohttp", "msgspec", "yaml", "cryptography", "apsw", "asyncssh", "asyncio", "ssl")


def _tree(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        with click.Context(command) as ctx:
            for name in command.list_commands(ctx):
                found = command.get_command(ctx, name)
                assert found is not None
                if not found.hidden:
                    yield from _tree(found, (*path, name))


ALL = {" ".join(path): command for path, command in _tree(main)}


def _help(words: str) -> str:
    result = CliRunner(env={"COLUMNS": str(_WIDTH), "LINES": "24"}).invoke(main, [*words.split(), "--help"])
    assert result.exit_code == 0, result.output
    return result.output


def _examples(text: str) -> list[str]:
    return [line for line in commands.in_lines(text) if line.startswith("remuda ")]


@pytest.mark.parametrize("words", ALL)
def test_help_shows_a_valid_example_of_each_command(words: str) -> None:
    shown = _examples(_help(words))
    assert shown, f"remuda {words} --help shows no example"
    for line in shown:
        commands.check(line)
    own = f"remuda {words}".strip()
    assert any(line.startswith(own) for line in shown), f"no example of {own} itself"


@pytest.mark.parametrize("words", ALL)
def test_help_fits_eighty_columns(words: str) -> None:
    wide = [line for line in _help(words).splitlines() if len(line) > _WIDTH]
    assert not wide


@pytest.mark.parametrize("words", ALL)
def test_every_option_has_help_text(words: str) -> None:
    silent = [
        param.opts[-1]
        for param in ALL[words].params
        if isinstance(param, click.Option) and not param.hidden and not param.help
    ]
    assert not silent


def test_every_command_has_short_help_and_is_listed() -> None:
    assert all(command.get_short_help_str(_WIDTH) for command in ALL.values())
    assert all(f"  {name} " in _help("") for name in (path for path in ALL if path and " " not in path))


def test_help_stays_within_cpu_time_limit() -> None:
    """Return the least processor time of several runs; neighbours on the same core slow down bare Python as well."""
    times = [_processor_seconds("-m", "remuda.cli.main", "--help") for _ in range(5)]
    if min(times) > _AT_ONCE:
        alone = [_processor_seconds("-c", "pass") for _ in range(5)]
        assert min(times) <= _TIMES_PYTHON * min(alone), f"seconds: {times}, Python alone: {alone}"


def _processor_seconds(*arguments: str) -> float:
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def test_help_does_not_import_heavy_modules() -> None:
    look = (
        "import sys; from remuda.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print(*(name for name in {_HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
    )
    assert "Management plane:" in done.stdout
    assert done.stderr.strip() == ""
