"""The real kubectl on the kinds of Cluster API: columns, short names, scale and explain, in the same words on both
servers."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from remuda.capi.definitions import definitions
from remuda.kube import kubeconfig
from remuda.kube.http import HttpClient
from remuda.runtime.definitions import install
from tests.interop.test_kubectl import Kubectl
from tests.lab import Ours, Server, Upstream, require_peer

NAMESPACE = "capi"
API = "cluster.x-k8s.io/v1beta2"
SINCE = "2026-01-01T00:00:00Z"
REF = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "AnyTemplate", "name": "c"}
MACHINE_SPEC = {
    "clusterName": "c",
    "version": "v1.35.0",
    "providerID": "any://m",
    "bootstrap": {"dataSecretName": "s"},
    "infrastructureRef": REF,
}
TEMPLATE = {
    "metadata": {"labels": {"pool": "a"}},
    "spec": {key: MACHINE_SPEC[key] for key in ("clusterName", "version")},
}
TEMPLATE["spec"] |= {"bootstrap": {"dataSecretName": "s"}, "infrastructureRef": REF}
POOL = {"clusterName": "c", "replicas": 3, "selector": {"matchLabels": {"pool": "a"}}, "template": TEMPLATE}
COUNTS = {"replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "upToDateReplicas": 3}


def true(type: str, status: str = "True") -> dict[str, Any]:
    return {"type": type, "status": status, "reason": "Any", "message": "", "lastTransitionTime": SINCE}


OBJECTS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    (
        "Cluster",
        "c",
        {"infrastructureRef": REF},
        {
            "phase": "Provisioned",
            "conditions": [true("Available"), true("Paused", "False")],
            "controlPlane": {"desiredReplicas": 3, **COUNTS},
            "workers": {"desiredReplicas": 5, **COUNTS},
        },
    ),
    (
        "Machine",
        "m",
        MACHINE_SPEC,
        {
            "phase": "Running",
            "nodeRef": {"name": "node-m"},
            "failureDomain": "north",
            "conditions": [true("Ready"), true("Available", "False"), true("UpToDate"), true("Paused", "False")],
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.7"},
                {"type": "ExternalIP", "address": "192.0.2.7"},
            ],
        },
    ),
    ("MachineSet", "ms", POOL, {**COUNTS, "conditions": [true("Paused", "False")]}),
    (
        "MachineDeployment",
        "md",
        POOL,
        {**COUNTS, "phase": "Running", "conditions": [true("Available"), true("Paused", "False")]},
    ),
    (
        "MachineHealthCheck",
        "mhc",
        {"clusterName": "c", "selector": {"matchLabels": {"pool": "a"}}},
        {"expectedMachines": 3, "currentHealthy": 2, "conditions": [true("Paused", "False")]},
    ),
    (
        "MachineDrainRule",
        "mdr",
        {"drain": {"behavior": "Drain", "order": 5}, "machines": [{"selector": {"matchLabels": {"pool": "a"}}}]},
        {},
    ),
]


async def define(server: Server) -> None:
    client = HttpClient(kubeconfig.load(server.kubeconfig, environ={}))
    try:
        await install(client, definitions())
    finally:
        await client.close()


def prepare(server: Server, path: Path, home: Path) -> Kubectl:
    """A namespace with one object of each kind, as its controller would have left it."""
    asyncio.run(define(server))
    kubectl = Kubectl(path, server, home, NAMESPACE)
    kubectl.run("create", "namespace", NAMESPACE)
    for kind, name, spec, status in OBJECTS:
        obj = {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
        kubectl("create", "-f", "-", stdin=json.dumps(obj))
        if status:
            patch = json.dumps({"status": status})
            kubectl("patch", kind.lower(), name, "--subresource=status", "--type=merge", "-p", patch)
    return kubectl


@pytest.fixture(scope="module")
def both(ours: Ours, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> tuple[Kubectl, Kubectl]:
    (path,) = require_peer("kubectl")
    return (
        prepare(ours, path, tmp_path_factory.mktemp("ours")),
        prepare(upstream, path, tmp_path_factory.mktemp("upstream")),
    )


Both = tuple[Kubectl, Kubectl]


def alike(both: Both, *words: str) -> str:
    """What both say, without the one thing that must differ: how old things are."""
    ours, upstream = (_ageless(kubectl(*words)) for kubectl in both)
    assert ours == upstream
    return ours


def _ageless(text: str) -> str:
    return re.sub(r"(?<= )\d+m?\d*s(?= |$)", "AGE", re.sub(r" +", " ", text), flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "header", "row"),
    [
        (
            "clusters",
            "NAME CLUSTERCLASS AVAILABLE CP DESIRED CP AVAILABLE CP UP-TO-DATE W DESIRED W AVAILABLE W UP-TO-DATE "
            "PHASE AGE VERSION",
            "c True 3 1 3 5 1 3 Provisioned AGE ",
        ),
        (
            "machines",
            "NAME CLUSTER NODE NAME FAILURE DOMAIN READY AVAILABLE UP-TO-DATE PHASE AGE VERSION",
            "m c node-m north True False True Running AGE v1.35.0",
        ),
        (
            "machinesets",
            "NAME CLUSTER DESIRED CURRENT READY AVAILABLE UP-TO-DATE AGE VERSION",
            "ms c 3 3 2 1 3 AGE v1.35.0",
        ),
        (
            "machinedeployments",
            "NAME CLUSTER AVAILABLE DESIRED CURRENT READY AVAILABLE UP-TO-DATE PHASE AGE VERSION",
            "md c True 3 3 2 1 3 Running AGE v1.35.0",
        ),
        ("machinehealthchecks", "NAME CLUSTER REPLICAS HEALTHY AGE", "mhc c 3 2 AGE"),
        ("machinedrainrules", "NAME BEHAVIOR ORDER AGE", "mdr Drain 5 AGE"),
    ],
)
def test_get_prints_expected_columns(both: Both, words: str, header: str, row: str) -> None:
    assert alike(both, "get", words).splitlines() == [header, row]


def test_get_wide_prints_additional_columns(both: Both) -> None:
    header, row = alike(both, "get", "machines", "-o", "wide").splitlines()
    assert "PROVIDER ID" in header
    assert "INTERNAL-IP EXTERNAL-IP OS-IMAGE PAUSED" in header
    assert "any://m" in row
    assert "10.0.0.7 192.0.2.7" in row


def test_short_names_and_category_select_kinds(both: Both) -> None:
    by_short_name = alike(both, "get", "cl,ma,md,ms,mhc", "-o", "name").split()
    assert by_short_name == [
        "cluster.cluster.x-k8s.io/c",
        "machine.cluster.x-k8s.io/m",
        "machinedeployment.cluster.x-k8s.io/md",
        "machineset.cluster.x-k8s.io/ms",
        "machinehealthcheck.cluster.x-k8s.io/mhc",
    ]
    of_category = alike(both, "get", "cluster-api", "-o", "name").split()
    assert set(of_category) >= {*by_short_name, "machinedrainrule.cluster.x-k8s.io/mdr"}
    assert alike(both, "get", "clusters,machines,md,ms,mhc").count("\nNAME") == 4


def test_api_resources_lists_capi_kinds(both: Both) -> None:
    told = alike(both, "api-resources", "--api-group=cluster.x-k8s.io", "-o", "wide")
    assert re.search(
        r"^machinedeployments md cluster\.x-k8s\.io/v1beta2 true MachineDeployment \S+ cluster-api", told, re.M
    )


@pytest.mark.parametrize("kind", ["machinedeployment", "machineset"])
def test_scale_changes_replicas(both: Both, kind: str) -> None:
    name = {"machinedeployment": "md", "machineset": "ms"}[kind]
    assert alike(both, "scale", kind, name, "--replicas=4", "--current-replicas=3") == (
        f"{kind}.cluster.x-k8s.io/{name} scaled\n"
    )
    assert alike(
        both, "get", kind, name, "--subresource=scale", "-o", "jsonpath={.kind} {.spec} {.status.replicas}"
    ) == ('Scale {"replicas":4} 3')
    assert alike(both, "get", kind, name, "-o", "jsonpath={.spec.replicas}") == "4"
    alike(both, "scale", kind, name, "--replicas=3")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("machine.spec", "clusterName\t<string> -required-"),
        ("cluster.spec.controlPlaneEndpoint", "FIELD: controlPlaneEndpoint <Object>"),
        ("machinedeployment.spec.rollout.strategy.rollingUpdate.maxSurge", "FIELD: maxSurge <Object>"),
        ("mhc.spec.remediation.triggerIf", "unhealthyInRange\t<string>"),
        ("machineset.status.conditions", "lastTransitionTime\t<string> -required-"),
    ],
)
def test_explain_shows_capi_fields(both: Both, path: str, said: str) -> None:
    assert said in alike(both, "explain", path)


def test_explain_knows_every_field(both: Both) -> None:
    for kind in ("cluster", "machine", "machineset", "machinedeployment", "machinehealthcheck", "machinedrainrule"):
        assert "<empty>" not in alike(both, "explain", kind, "--recursive")


def test_describe_matches_upstream(both: Both) -> None:
    ours, upstream = (
        [line for line in kubectl("describe", "machine", "m").splitlines() if _same(line)] for kubectl in both
    )
    assert ours == upstream
    assert [line.split() for line in ours if "Provider ID" in line] == [["Provider", "ID:", "any://m"]]


def _same(line: str) -> bool:
    return not re.match(r"\s*(UID|Resource Version|Creation Timestamp):", line)
