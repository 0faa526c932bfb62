"""Commands that the pages show are there, with these options and as many arguments."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from remuda.cli.main import main
from tests.lab import commands
from tests.unit.test_pages import HAND_WRITTEN, ROOT


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_shown_on_a_page_exist(page: Path) -> None:
    text = page.read_text()
    for line in commands.in_page(text):
        commands.check(line)
    for line in commands.mentioned(text):
        commands.check(line, whole=False)


def test_cli_page_mentions_every_command() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    missing = [name for name in main.list_commands(click.Context(main)) if f"`remuda {name}" not in page]
    assert not missing


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("remuda rides", "there is no command 'rides'"),
        ("remuda token rides", "there is no command 'rides'"),
        ("remuda up --saddle", "No such option"),
        ("remuda backup ./data", "without FILE"),
        ("remuda backup ./data file more", "too many arguments: more"),
        ("remuda plan -f a.yaml -o poem", "'poem' is not one of"),
    ],
)
def test_invalid_shown_command_is_detected(line: str, said: str) -> None:
    with pytest.raises(commands.NoSuchCommand, match=said):
        commands.check(line)


def test_only_remuda_commands_are_extracted_from_a_page() -> None:
    page = """
```
KUBECONFIG=./data .venv/bin/remuda up --data-dir ./data & # and more
remuda clusters list | remuda get kubeconfig prairie > file
kubectl remuda backup \\
  ./data file
kubectl get pods
```

```text
remuda ready at https://127.0.0.1:6443
```
"""
    assert [commands.words(line) for line in commands.in_page(page)] == [
        ["up", "--data-dir", "./data"],
        ["clusters", "list"],
        ["get", "kubeconfig", "prairie"],
        ["backup", "./data", "file"],
    ]
