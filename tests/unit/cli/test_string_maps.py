"""Values that must be strings and that YAML reads as something else, named by their keys."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from remuda.cli import manifest_files

CLUSTER = """\
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata:
  name: prairie
  labels: {y: yes, tier: web}
  annotations: {version: 1.10}
spec:
  rkeConfig:
    machineGlobalConfig: {node-label: no, labels: {free: true}}
    machinePools:
      - name: workers
        workerRole: yes
        labels: {gpu: off}
        machineConfigRef: {kind: SimConfig, name: workers}
"""
MAP = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: files}
data: {replicas: 3, text: "3", on: x}
"""


def refused(text: str) -> list[str]:
    with pytest.raises(click.ClickException) as caught:
        manifest_files.parse(text, "cluster.yaml")
    return caught.value.message.splitlines()


def test_every_boolean_and_number_is_named_by_its_key() -> None:
    head = "cluster.yaml: Cluster prairie: "
    assert refused(CLUSTER) == [
        f"{head}metadata.labels.y is a boolean (true): quote it",
        f"{head}metadata.annotations.version is a number (1.1): quote it",
        f"{head}spec.rkeConfig.machinePools[0].labels.gpu is a boolean (false): quote it",
    ]


def test_data_of_a_config_map_and_keys_are_checked() -> None:
    head = "cluster.yaml: ConfigMap files: "
    assert refused(MAP) == [
        f"{head}data has the key true, which is a boolean: quote it",
        f"{head}data.replicas is a number (3): quote it",
    ]


def test_definitions_and_free_values_are_left_alone() -> None:
    schema = "{type: object, properties: {labels: {nullable: true, x-kubernetes-preserve-unknown-fields: true}}}"
    text = f"apiVersion: x\nkind: CustomResourceDefinition\nmetadata: {{name: a}}\nspec: {schema}\n"
    assert len(manifest_files.parse(text, "crd.yaml")) == 1
    for path in (Path(__file__).parents[3] / "examples").rglob("*.yaml"):
        if "clusterctl" not in path.parts:
            assert manifest_files.parse(path.read_text(), path.name)
