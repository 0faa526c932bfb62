"""Bodies of creates, updates and patches: JSON, YAML and protobuf."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from remuda.apiserver.http.decode import ObjectReader, Unreadable, decode_json, read_patch
from remuda.apiserver.http.negotiate import JSON, PROTOBUF, YAML
from remuda.apiserver.kinds import builtin_resources
from remuda.apiserver.kinds.protobuf import decode as decode_protobuf
from remuda.kube.cost import LIMITS, Budget
from remuda.kube.errors import StatusError
from tests.fuzz.source import Source

_READER = ObjectReader(decode_protobuf)
_KINDS = {resource.kind: resource for resource in builtin_resources()}
_RESOURCES = [_KINDS[kind] for kind in ("ConfigMap", "Secret", "Pod", "Job", "ClusterRole", "CustomResourceDefinition")]
_LARGEST = 4 * 1024 * 1024  # bytes of an object that was read from a body of some kilobytes


def check(data: bytes) -> None:
    """Raise if a body is neither read nor refused, or becomes much larger by being read."""
    source = Source(data)
    form, validation = source.byte() % 6, source.pick(("Strict", "Warn", "Ignore"))
    resource = source.pick(_RESOURCES)
    body = source.rest()
    try:
        if form < 3:
            value, _ = _READER.read(body, (JSON, YAML, PROTOBUF)[form], resource, "", validation)
        elif form == 3:
            value = decode_json(body, custom=True)
            assert decode_json(msgspec.json.encode(value), custom=True) == value
        else:
            value, _ = read_patch(body, "apply" if form == 4 else "merge", validation, custom=form == 4)
    except Unreadable:
        return
    except StatusError as error:
        assert error.code < 500, error
        return
    Budget().charge_object(value)
    assert sum(len(text) for text in _texts(value)) <= _LARGEST
    assert len(msgspec.json.encode(value)) <= _LARGEST + 32 * LIMITS.values


def _texts(value: Any) -> Iterable[str]:
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            pending += (*one, *one.values())
        elif isinstance(one, list):
            pending += one
