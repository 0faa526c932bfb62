"""Admission of tokens: what it costs is bounded, whatever the object holds. The schema is asked only afterwards."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from remuda.access.admission import FUNCTIONS, admit_token
from remuda.access.types import MOST_CLUSTERS, TOKEN
from remuda.kube.admission import Review

Json = dict[str, Any]
HASH = "sha256:" + "0" * 64


class Objects:
    """No object at all but the user; counts what is asked for."""

    def __init__(self) -> None:
        self.lookups = 0
        self.selects = 0

    def lookup(self, api_version: str, plural: str, namespace: str, name: str) -> Json | None:
        self.lookups += 1
        return {"metadata": {"name": name}} if plural == "users" else None

    def select(self, api_version: str, plural: str, namespace: str, labels: Mapping[str, str]) -> list[Json]:
        self.selects += 1
        return []


def review(objects: Objects, clusters: list[str]) -> Review:
    token = {"metadata": {"name": "t"}, "userId": "rider", "hash": HASH, "clusterNames": clusters}
    return Review(
        operation="CREATE",
        group=TOKEN.group,
        version="v3",
        kind="Token",
        resource=TOKEN.plural,
        namespace="",
        name="t",
        user="rider",
        lookup=objects.lookup,
        select=objects.select,
        new=token,
    )


def test_token_for_too_many_clusters_is_refused_before_lookup() -> None:
    objects = Objects()
    started = time.process_time()
    (error,) = admit_token(review(objects, [f"c-{n}" for n in range(100_000)])).errors
    assert time.process_time() - started < 0.5  # it took 6 s
    assert str(error) == f"clusterNames: Too many: 100000: must have at most {MOST_CLUSTERS} items"
    assert (objects.lookups, objects.selects) == (0, 0)


def test_token_for_unknown_clusters_reads_control_planes_once() -> None:
    objects = Objects()
    found = admit_token(review(objects, [f"c-{n}" for n in range(MOST_CLUSTERS)])).errors
    assert [error.path for error in found] == [f"clusterNames[{n}]" for n in range(MOST_CLUSTERS)]
    assert objects.selects == 1


def test_audit_line_of_a_refused_token_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    (judge,) = [one.function for one in FUNCTIONS if one.plural == TOKEN.plural]
    with caplog.at_level(logging.INFO, "remuda.audit"):
        judge(review(Objects(), [f"c-{n}" for n in range(MOST_CLUSTERS)]))
    (line,) = [msgspec.json.decode(record.getMessage()) for record in caplog.records]
    assert "clusterNames[15]" in line["why"]
    assert line["why"].endswith(f"; and {MOST_CLUSTERS - 16} more")
