"""Manifests as people write them: files, folders and standard input, with several objects each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from remuda.cli.string_maps import wrong_types

_ENDINGS = (".yaml", ".yml", ".json")


def files_option(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "-f",
        "--filename",
        "files",
        multiple=True,
        required=required,
        type=click.Path(allow_dash=True, path_type=Path),
        help="Manifest, or a folder of manifests; - for standard input. Repeatable.",
    )


def read(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Return all objects in their order, with Lists expanded. Raises ClickException for anything that is no object."""
    found = [obj for path in files for place in _places(path) for obj in parse(text(place), str(place))]
    if not found:
        raise click.ClickException(f"no objects found in {', '.join(map(str, files))}")
    return found


def _places(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.iterdir() if one.suffix in _ENDINGS)
    if not found:
        raise click.ClickException(f"no manifests found in {path}: their names must end with {', '.join(_ENDINGS)}")
    return found


def text(path: Path) -> str:
    """Return the text of a file, or of standard input (`-`). Raises ClickException."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"cannot read {path}: {error}") from None


def parse(text: str, place: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest. Raises ClickException."""
    import yaml

    from remuda.cli import yaml_output

    try:
        documents = yaml_output.load_all(text)
    except yaml.YAMLError as error:
        raise click.ClickException(f"{place} is not valid YAML: {error}") from None
    return [obj for document in documents for obj in _objects(document, place)]


def _objects(obj: Any, place: str) -> Iterator[dict[str, Any]]:
    if isinstance(obj, dict) and obj.get("kind") == "List" and isinstance(obj.get("items"), list):
        for item in obj["items"]:
            yield from _objects(item, place)
        return
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict) or not all((obj.get("apiVersion"), obj.get("kind"), metadata.get("name"))):
        raise click.ClickException(f"{place}: every object needs apiVersion, kind and metadata.name")
    if errors := wrong_types(obj):
        raise click.ClickException("\n".join(f"{place}: {obj['kind']} {metadata['name']}: {one}" for one in errors))
    yield obj
