"""Support bundles: Secrets of tenants and nodes, searched for what must not be told."""

from __future__ import annotations

import base64
import json
from typing import Any

from remuda.agent import formats
from remuda.cli import redaction
from remuda.cli.redaction import Redactor
from tests.fuzz.source import Source

_NAMES = (
    *(
        "files",
        "path",
        "content",
        "instructions",
        "env",
        "args",
        "token",
        "password",
        "clientSecret",
        "kubeConfig",
        "name",
    ),
    *("value", "probes", "A=b", "--token abc", "metadata", "annotations", "YWJjZGVmZ2hpamtsbW5vcA=="),
)
_KEYS = ("plan", "appliedPlan", "applied-periodic-output", "failed-message", "probe-statuses", "token", "value", "x")
_PASSWORD = "correct-horse-battery"
_LARGEST = 1024 * 1024


def check(data: bytes) -> None:
    """Raise if a Secret ends the bundle, makes it large, or a known password is in it."""
    source = Source(data)
    values = {key: base64.b64encode(_value(source)).decode() for key in _KEYS if source.flag()}
    if source.flag():
        values[source.pick(_KEYS)] = source.text()  # not base64
    secret = {
        "metadata": {"name": "a", "namespace": "b", "annotations": {source.name(_NAMES): source.text()}},
        "type": source.pick(("Opaque", "rke.cattle.io/machine-plan", "")),
        "data": values,
    }
    redactor = Redactor({"Thing": ("x",)})
    redactor.learn_secret(secret)
    redactor.learn(_PASSWORD)
    thing = {
        "kind": source.pick(("Thing", "x")),
        "metadata": {"labels": {source.name(_NAMES): source.text()}},
        "spec": source.json(_NAMES),
    }
    told: Any = [redaction.outline(secret), redaction.plan(secret, redactor), redactor.obj(thing)]
    told.append(redactor.text(f"{source.text()}{_PASSWORD}{source.text()}"))
    text = json.dumps(told)
    assert _PASSWORD not in text
    assert len(text) <= _LARGEST


def _value(source: Source) -> bytes:
    form = source.byte() % 4
    if form == 0:
        return source.take(source.byte())
    if form == 1:
        return formats.pack(source.object(_NAMES))
    content = json.dumps(source.json(_NAMES)).encode()
    return content if form == 2 else b"a: |\n  " + content + b"\nb: " + source.text().encode()
