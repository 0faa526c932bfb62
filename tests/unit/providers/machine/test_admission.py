"""NodeDrivers that could never work are refused, in words."""

from __future__ import annotations

import pytest

from remuda.kube.objects import ObjectMeta
from remuda.providers.machine.admission import complaints
from remuda.providers.shared.types.machine import NodeDriver, NodeDriverSpec


def said(name: str, **spec: str) -> list[str]:
    driver = NodeDriver(metadata=ObjectMeta(name=name), spec=NodeDriverSpec(**spec))  # type: ignore[arg-type]
    return [str(error) for error in complaints(driver)]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"url": "local://"},
        {"url": "https://example.com/docker-machine-driver-x.tgz"},
        {"url": "/usr/bin/docker-machine-driver-x"},
        {"url": "http://example.com/x", "checksum": "a" * 64},
        {"display_name": "Toy"},
    ],
)
def test_valid_node_driver_is_accepted(spec: dict[str, str]) -> None:
    assert said("toy", **spec) == []


@pytest.mark.parametrize(
    ("name", "spec", "word"),
    [
        ("nd-x7k2p", {}, "metadata.name"),
        ("Toy", {}, "metadata.name"),
        ("toy", {"display_name": "other"}, "spec.displayName"),
        ("toy", {"url": "ftp://example.com/x"}, "spec.url"),
        ("toy", {"url": "relative/path"}, "spec.url"),
        ("toy", {"url": "https://user:secret@example.com/x"}, "spec.url"),
        ("toy", {"url": "http://example.com/x"}, "spec.checksum"),
    ],
)
def test_invalid_node_driver_is_rejected_by_field(name: str, spec: dict[str, str], word: str) -> None:
    (complaint,) = said(name, **spec)
    assert word in complaint
    assert "secret" not in complaint
