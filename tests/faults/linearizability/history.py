"""Histories of requests to an API server, and the judge of them: Porcupine, in interop/linearizability."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from tests.lab.peers import require_peer

Verb = Literal["create", "get", "update", "status", "delete", "list"]
Answer = Literal["ok", "absent", "exists", "conflict", "unknown"]


class Shown(msgspec.Struct, frozen=True):
    """An object as an answer shows it. Tokens tell each write's value from any other's."""

    revision: int
    token: str = ""
    status: str = ""


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, rename={"returned": "return"}):
    """One request and its answer. An unknown answer is that of a connection that was lost: the write may be done."""

    client: int
    verb: Verb
    call: int  # nanoseconds of one clock
    returned: int
    answer: Answer
    key: str = ""
    token: str = ""
    expected: int = 0  # the resourceVersion that an update requires
    object: Shown | None = None
    items: Mapping[str, Shown] = msgspec.field(default_factory=dict)  # of a list
    revision: int = 0  # of a list


class Verdict(NamedTuple):
    problems: Sequence[str]
    keys: Sequence[str]  # of the objects whose history is not linearizable


def judge(history: Sequence[Operation]) -> Verdict:
    """Return what is wrong with a history; nothing if it is linearizable."""
    (program,) = require_peer("linearizability")
    said = subprocess.run(
        [program], input=msgspec.json.encode({"operations": history}), capture_output=True, check=False
    )
    assert said.returncode == 0, said.stderr.decode()
    found = json.loads(said.stdout)
    return Verdict(found["problems"], found["keys"])


def shown(history: Sequence[Operation], verdict: Verdict) -> str:
    """Render the problems, and the operations on the objects that they are about."""
    concerned = [
        operation
        for operation in sorted(history, key=lambda operation: operation.call)
        if operation.verb == "list" or operation.key in verdict.keys
    ]
    return "\n".join([*verdict.problems, *(msgspec.json.encode(operation).decode() for operation in concerned)])
