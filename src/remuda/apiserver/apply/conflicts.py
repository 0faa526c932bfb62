"""Fields that an applier wants to change while others own them, and how it is told."""

from __future__ import annotations

from remuda.apiserver.apply.entries import UPDATE, Key, identifier
from remuda.apiserver.apply.fieldset import LEAF, Fields, Path, has, members, shown_path, union
from remuda.kube.errors import StatusError, apply_conflict
from remuda.kube.go_quote import quoted

Contested = dict[Key, Fields]  # by manager, what it owns and the applier would change


def contested_fields(contested: Contested) -> Fields:
    whole: Fields = LEAF
    for fields in contested.values():
        whole = union(whole, fields)
    return whole


def _listed(contested: Contested) -> list[tuple[Key, Path]]:
    keys = sorted(contested, key=identifier)
    return [(key, path) for key in keys for path in members(contested[key])]


def _shown_manager(key: Key) -> str:
    manager, operation, version, subresource = key
    text = quoted(manager)
    if subresource:
        text += f" with subresource {quoted(subresource)}"
    return f"{text} using {version}" if operation == UPDATE else text


def refusal(contested: Contested, allowed: Fields = LEAF) -> StatusError:
    """The 409 that lists every contested field but those allowed."""
    conflicts = [(key, shown_path(path)) for key, path in _listed(contested) if not has(allowed, path)]
    causes = [(f"conflict with {_shown_manager(key)}", path) for key, path in conflicts]
    return apply_conflict(_message(conflicts), causes)


def _message(conflicts: list[tuple[Key, str]]) -> str:
    if len(conflicts) == 1:
        key, path = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {_shown_manager(key)}: {path}"
    lines: list[str] = []
    shown: Key | None = None
    for key, path in conflicts:
        if key != shown:
            lines.append(f"conflicts with {_shown_manager(key)}:")
            shown = key
        lines.append(f"- {path}")
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
