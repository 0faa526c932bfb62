"""`remuda generate cluster` beside the real `clusterctl generate cluster`: of the same template the same objects."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.clusterctl import repository
from tests.e2e.program import run
from tests.lab import require_peer
from tests.lab.clusterctl import write_repository

VERSION = "v1.36.4+k3s1"
GIVEN = {
    "AMAZONEC2_AMI": "ami-0123456789",
    "AMAZONEC2_REGION": "eu-west-1",
    "EXISTING_ADDRESSES": "[10.0.0.1, 10.0.0.2]",
    "A": "foo",
    "EMPTY": "",
}
SYNTAX = """
apiVersion: v1
kind: ConfigMap
metadata: {name: "${CLUSTER_NAME}", namespace: elsewhere}
data:
  plain: "${A} ${ A } $A $ $$A $${A}"
  defaults: "${B:=bee} ${C:-a b/c-d.e:f} ${D=dee} ${E:=${A}} ${F:={x}}"
  empty: "${EMPTY:=x} ${EMPTY:-x} ${EMPTY=x}"
  nothing: ${G:=""}
  case: "${A^^} ${A,,} ${A^} ${A,}"
  parts: "${A:1} ${A:1:2} ${#A}"
  trimmed: "${A#f} ${A##f*} ${A%o} ${A%%o*}"
  replaced: "${A/o/x} ${A//o/x} ${A/#f/x} ${A/%o/x}"
---
{apiVersion: v1, kind: Namespace, metadata: {name: some}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: some}, rules: []}
---
{apiVersion: a.example/v1, kind: Thing, metadata: {name: some, labels: {day: "2026-01-01"}}, spec: {day: 2026-01-01}}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repository(tmp_path_factory.mktemp("repository"))


def theirs(home: Path, *words: object) -> list[dict[str, Any]]:
    """No server, no network."""
    (program,) = require_peer("clusterctl")
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "CLUSTERCTL_DISABLE_VERSIONCHECK": "true"}
    done = subprocess.run(
        [program, "generate", "cluster", "prairie", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment, "GOPROXY": "off", **GIVEN},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def ours(words: Sequence[object], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    done = run("generate", "cluster", "prairie", *words)
    assert (done.code, done.err) == (0, "")
    return list(yaml.safe_load_all(done.out))


@pytest.mark.parametrize("driver", [one.driver for one in repository.flavours()])
def test_generated_cluster_matches_clusterctl_for_each_flavor(
    driver: str, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = ("--control-plane-machine-count", "3", "--worker-machine-count", "2")
    words = ("--flavor", driver, "--kubernetes-version", VERSION, *counts, "-n", "team")
    provider = f"remuda:{repository.version()}"
    made = theirs(tmp_path, "--config", config, "--infrastructure", provider, *words)
    assert len(made) == 8
    assert ours(words, monkeypatch) == made


def test_generate_defaults_match_clusterctl(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--kubernetes-version", VERSION, "-n", "default")
    provider = f"remuda:{repository.version()}"
    made = theirs(tmp_path, "--config", config, "--infrastructure", provider, *words)
    assert ours(words[:2], monkeypatch) == made


def test_template_variable_syntax_matches_clusterctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(SYNTAX)
    words = ("--from", template, "-n", "team")
    made = theirs(tmp_path, *words)
    assert made[0]["data"]["case"] == "FOO foo Foo foo"
    assert ours(words, monkeypatch) == made
