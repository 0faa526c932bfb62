"""Draw texts of the project at random, to test whether a reader without context understands them.

python -m tests.lab.string_sample             30 texts: six of docs, help, log lines, waits and steps, test names
python -m tests.lab.string_sample --seed 7    other ones

Give the texts to a person who does not know the project, who says each one in other words. At least 28 of 30 should be
right (docs/style.md).
"""

from __future__ import annotations

import argparse
import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

import click

from remuda.cli.main import main as remuda

_SOURCE = Path("src/remuda")
_PAGES = Path("docs")
_TESTS = Path("tests")
_LOG_METHODS = frozenset(("debug", "info", "warning", "error", "exception"))
_WAITS = frozenset(("Blocked", "Requeue", "Retryable", "Terminal", "warning_event", "step"))
_OF_EACH = 6
_SHORTEST = 20
_FEWEST_WORDS = 3


def pages(folder: Path) -> Iterator[str]:
    """Yield sentences of the documentation, without code, tables and headings."""
    for page in sorted(folder.rglob("*.md")):
        prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for paragraph in prose.split("\n\n"):
            if paragraph.lstrip().startswith(("#", "|", "<")):
                continue
            for sentence in re.split(r"(?<=\.)\s+", " ".join(paragraph.split())):
                yield sentence.removeprefix("- ")


def help_texts(command: click.Command) -> Iterator[str]:
    yield (command.help or "").split("\n\n")[0].replace("\n", " ")
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from help_texts(below)


def calls(folder: Path, names: frozenset[str]) -> Iterator[str]:
    """Yield the texts that functions and methods of these names are called with."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _called(node) in names:
                for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                    yield _text(argument)


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(node: ast.expr) -> str:
    """Return a literal, with the expressions of an f-string as placeholders; empty for everything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return ast.unparse(node).removeprefix("f").strip("'\"")
    return ""


def test_names(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("test_*.py")):
        yield from re.findall(r"^\s*(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)


def sample(seed: int) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each string drawn."""
    chance = random.Random(seed)
    texts = {
        "docs": pages(_PAGES),
        "help": help_texts(remuda),
        "log": calls(_SOURCE, _LOG_METHODS),
        "wait": calls(_SOURCE, _WAITS),
        "test": test_names(_TESTS),
    }
    for kind, found in texts.items():
        candidates = sorted({text for text in found if kind == "test" or _is_sentence(text)})
        for text in chance.sample(candidates, _OF_EACH):
            yield kind, text


def _is_sentence(text: str) -> bool:
    """Return whether a text says something: names of objects and fragments do not."""
    return len(text) >= _SHORTEST and len(re.sub(r"\{[^}]*\}|%s", "", text).split()) >= _FEWEST_WORDS


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.lab.string_sample", description="Draw texts of the project.")
    parser.add_argument("--seed", type=int, default=1, help="draw other texts")
    for number, (kind, text) in enumerate(sample(parser.parse_args().seed), 1):
        print(f"{number:2} {kind:5} {text}")


if __name__ == "__main__":
    main()
