"""Commands that a user probably meant: mistyped ones, and those of other tools. Pure.

Other tools put the object first (`cluster list`), have other verbs (`ls`, `show`, `rm`), or leave the kind out
(`describe prairie`). The suggestion is a whole command line that works as printed.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.kube.similar_names import similar

# Verbs of other tools → ours. None of ours is here.
_VERBS = {
    "list": "get",
    "ls": "get",
    "show": "describe",
    "info": "describe",
    "inspect": "describe",
    "new": "create",
    "add": "create",
    "rm": "delete",
    "remove": "delete",
    "destroy": "delete",
    "patch": "edit",
    "explain": "drivers describe",
    "diff": "plan",
    "unpause": "resume",
    "start": "up",
    "serve": "up",
    "init": "up",
    "stop": "down",
}
_OUR_VERBS = (
    "get",
    "describe",
    "create",
    "delete",
    "edit",
    "scale",
    "upgrade",
    "pause",
    "resume",
    "retry",
    "why",
    "logs",
)
_NOUNS = ("cluster", "machine", "nodedriver", "secret", "node", "event")
_TAKES_CLUSTER_NAME = ("edit", "scale", "upgrade", "pause", "resume", "retry", "why")  # without the kind


def commands_meant(words: Sequence[str], path: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return command lines behind the name of the program, the likeliest first; none if nothing comes to mind.

    `words`: the command line; `path`: the part of it that is known; `known`: the commands of the group there.
    """
    unknown = words[len(path)] if len(words) > len(path) else ""
    rest = [word for word in words[len(path) + 1 :] if not word.startswith("-")]
    if not path:
        found = _reordered(unknown, rest) or _other_verb(unknown, rest)
        if found:
            return [found] if found.split()[0] in known else []
    elif list(path) == ["machine"] and unknown in (*_VERBS, *_OUR_VERBS):
        return [_reordered("machine", [unknown, *rest])]
    close = similar(unknown, known)
    if close:
        return [" ".join([*path, one, *rest]) for one in close]
    if list(path) in (["describe"], ["create"], ["logs"]) and "cluster" in known and unknown:
        return [" ".join([*path, "cluster", unknown])]
    return []


def _noun(word: str) -> str:
    """Return the singular of a noun that we know; empty: none."""
    single = word.lower().removesuffix("s")
    return single if single in _NOUNS else ""


def _reordered(word: str, rest: Sequence[str]) -> str:
    """Return the command for an object before its verb: `cluster list`."""
    noun = _noun(word)
    if not noun:
        return ""
    if not rest:
        return f"get {noun}s"
    verb, names = rest[0].lower(), list(rest[1:])
    if verb == "kubeconfig":
        return " ".join(["get", "kubeconfig", *names])
    ours = _VERBS.get(verb, verb)
    if ours not in _OUR_VERBS:
        return " ".join(["describe" if noun in ("cluster", "machine") else "get", noun, rest[0]])
    return _line(ours, noun, names)


def _other_verb(word: str, rest: Sequence[str]) -> str:
    """Return the command for a verb of another tool: `list clusters`, `kubeconfig prairie`, `ssh NAME`."""
    if word == "kubeconfig":
        return " ".join(["get", "kubeconfig", *rest])
    if word == "ssh":
        return " ".join(["machine", "ssh", *rest])
    ours = _VERBS.get(word.lower(), "")
    if ours not in _OUR_VERBS:
        return " ".join([ours, *rest]) if ours else ""
    noun = _noun(rest[0]) if rest else ""
    return _line(ours, noun or "cluster", list(rest[1:] if noun else rest))


def _line(verb: str, noun: str, names: list[str]) -> str:
    if verb in ("get", "describe") and not names:
        return f"get {noun}s"
    if verb == "describe" and noun not in ("cluster", "machine"):
        verb = "get"
    if verb in _TAKES_CLUSTER_NAME and noun == "cluster":
        return " ".join([verb, *names])
    return " ".join([verb, noun, *names])
