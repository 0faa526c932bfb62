"""`remuda drivers`: what is installed, said as the drivers say it."""

from __future__ import annotations

from click.testing import CliRunner

from remuda.cli.drivers import command
from remuda.providers.shared import drivers


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, list(words))
    return result.exit_code, result.output


def test_drivers_list_prints_one_line_per_driver() -> None:
    code, text = run("list")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == drivers.names()


def test_drivers_describe_shows_kinds_flags_types_and_defaults() -> None:
    code, text = run("describe", "nspawn")
    assert code == 0
    assert "NspawnMachine (rke-machine.cattle.io/v1)" in text
    assert 'bridge  (string, default "remuda0")\n  --nspawn-bridge\n' in text
    assert "(cloud-init or ssh, default " in text


def test_drivers_describe_marks_secret_and_credential_options() -> None:
    _, text = run("describe", "amazonec2")
    assert "Options that a credential Secret may set: " in text
    assert "secretKey  (string, secret" in text


def test_unknown_driver_error_lists_available_drivers() -> None:
    code, text = run("describe", "spaceship")
    assert code == 1
    assert "driver spaceship not found; installed drivers: " in text
