"""Merge of a kubeconfig into a file that the user already has.

What the file has besides stays as it is, but for comments and the order of its fields. The new file replaces the old
one in one step, with the rights of its owner only. As kubectl does, a lock file keeps other writers away meanwhile.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from remuda.cli import CliError

Json = dict[str, Any]

_LISTS = {"clusters": "cluster", "users": "user", "contexts": "context"}


class MergeRefused(CliError):
    """Error with a message for users."""


def merge_into(path: Path, made: Json) -> str:
    """Add the entries of a kubeconfig to a file, and return the file's current context. Raises MergeRefused."""
    path = path.resolve()  # a link stays one: the file behind it is replaced
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path):
            found = merged(_read(path), made, str(path))
            _replace(path, yaml.safe_dump(found, sort_keys=False))
    except OSError as error:
        raise MergeRefused(f"cannot write {path}: {error.strerror}") from None
    return str(found["current-context"])


def merged(present: Json, made: Json, place: str) -> Json:
    """Return the kubeconfig with the new entries. Pure. Raises MergeRefused for a name that means another cluster."""
    name = made["current-context"]
    (wanted,) = (one["cluster"]["server"] for one in made["clusters"])
    servers = {one.get("name"): (one.get("cluster") or {}).get("server") for one in present.get("clusters") or ()}
    for context in present.get("contexts") or ():
        known = (context.get("context") or {}).get("cluster")
        if context.get("name") == name and servers.get(known) not in (None, wanted):
            raise MergeRefused(
                f"{place} has a context {name} for another cluster ({servers[known]}): choose another name with "
                "--context NAME"
            )
    if servers.get(name) not in (None, wanted):
        raise MergeRefused(
            f"{place} has another cluster called {name} ({servers[name]}): choose another name with --context NAME"
        )
    result = {"apiVersion": "v1", "kind": "Config", **present}
    for key in _LISTS:
        new = {one["name"]: one for one in made[key]}
        kept = [one for one in present.get(key) or () if one.get("name") not in new]
        result[key] = [*kept, *new.values()]
    result["current-context"] = present.get("current-context") or name
    return result


def _read(path: Path) -> Json:
    try:
        found = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, UnicodeDecodeError):
        raise MergeRefused(f"{path} is not valid YAML; nothing was changed") from None
    is_config = isinstance(found, dict) and all(isinstance(found.get(key) or [], list) for key in _LISTS)
    if found is not None and not is_config:
        raise MergeRefused(f"{path} is not a kubeconfig; nothing was changed")
    return found or {}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = path.with_name(f"{path.name}.lock")
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise MergeRefused(
            f"{lock} exists: another program is changing {path}. Try again; delete the lock if none is"
        ) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise
