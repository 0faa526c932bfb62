"""The real clusterctl on the repository that `remuda clusterctl-repository` writes: clusters of our providers from one
command line, with no provisioning Cluster above them, and the providers themselves installed on a Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.capi.inventory import CORE
from remuda.clusterctl import repository
from tests.e2e.program import run
from tests.interop.management import Program
from tests.lab import Upstream, require_peer
from tests.lab.clusterctl import Tools, write_repository
from tests.lab.clusters import VERSION, Fleet, is_ready
from tests.lab.up import DRIVERS, condition, eventually

Json = dict[str, Any]

NAMESPACE = "default"
PATIENCE = "1200s"
DRIVER_NAMES = [flavour.driver for flavour in repository.flavours()]
TYPES = ("infrastructure", "bootstrap", "control-plane")
GIVEN = {"AMAZONEC2_AMI": "ami-0123456789", "REMUDA_SERVER_URL": "https://remuda.example:8443"}
# What clusterctl looks for to find that it need not install cert-manager, which ours has no use for.
CERT_MANAGER = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.cert-manager.io}}
spec:
  group: cert-manager.io
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    require_peer("kubectl", "clusterctl")
    found = Fleet()
    try:
        for driver in DRIVER_NAMES:
            found.until(DRIVERS, driver, lambda obj: condition(obj, "Active") == "True")
        found.add_nano(tmp_path_factory.mktemp("bundles"), VERSION)
        yield found
    finally:
        found.stop()


@pytest.fixture
def tools(fleet: Fleet, tmp_path: Path) -> Tools:
    return Tools(tmp_path, fleet.kubeconfig, NAMESPACE, GIVEN)


@pytest.mark.parametrize("driver", DRIVER_NAMES)
def test_generated_manifest_is_accepted_by_server(driver: str, tools: Tools, config: Path) -> None:
    said = ("--config", str(config), "generate", "cluster", "c", "--flavor", driver, "--kubernetes-version", VERSION)
    manifest = tools.clusterctl(*said, "--infrastructure", "remuda")
    objects = json.loads(tools.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", stdin=manifest))["items"]
    assert f"{driver.capitalize()}MachineTemplate" in {one["kind"] for one in objects}


def test_flavor_lists_required_and_optional_variables(tools: Tools, config: Path) -> None:
    said = ("--config", str(config), "generate", "cluster", "c", "--flavor", "amazonec2", "--list-variables")
    required, _, optional = tools.clusterctl(*said).partition("Optional")
    assert "AMAZONEC2_AMI" in required
    assert "AMAZONEC2_REGION" in optional


def test_repository_contains_flavors_of_server_drivers(fleet: Fleet, tmp_path: Path) -> None:
    written = run("clusterctl-repository", tmp_path / "r", "--kubeconfig", fleet.kubeconfig)
    assert (written.code, written.err) == (0, "")
    for driver in DRIVER_NAMES:
        assert f"/cluster-template-{driver}.yaml\n" in written.out


def test_generated_process_cluster_becomes_available_and_is_deleted(fleet: Fleet, tools: Tools, config: Path) -> None:
    """Neither provider nor flavour is named: the server knows which provider it has, and one flavour needs nothing."""
    counts = ("--control-plane-machine-count", "1", "--worker-machine-count", "1")
    said = ("--config", str(config), "generate", "cluster", "prairie", "--kubernetes-version", VERSION)
    tools.kubectl("apply", "-f", "-", stdin=tools.clusterctl(*said, *counts))
    tools.available("prairie", PATIENCE)
    tools.wait("rkecontrolplane/prairie", "--for=condition=Ready", patience=PATIENCE)
    tools.wait("machines", "--all", "--for=condition=Available", patience=PATIENCE)
    nodes = tools.nodes("prairie")
    assert len(nodes) == 2
    assert all(map(is_ready, nodes.values()))
    told = tools.described("prairie")
    for name in nodes:
        assert told[f"Machine/{name}"][4:6] == ["True", "Ready"]
    why = lambda: fleet.remuda("why", "prairie", "-n", NAMESPACE).stdout  # noqa: E731
    eventually(lambda: why() == "Cluster prairie is ready\n", why)  # the last host may be given one more plan

    tools.kubectl("delete", "clusters.cluster.x-k8s.io", "prairie", "-n", NAMESPACE, f"--timeout={PATIENCE}")
    left = lambda: [one for one in fleet.everything() if "prairie" in one]  # noqa: E731
    eventually(lambda: not left(), lambda: f"left: {left()}")
    assert fleet.processes() == []


# installing the providers


@pytest.mark.parametrize("type", TYPES)
def test_provider_components_have_labels_and_resolved_variables(type: str, tools: Tools, config: Path) -> None:
    named = ("--config", str(config), "generate", "provider", f"--{type}", "remuda")
    objects = list(yaml.safe_load_all(tools.clusterctl(*named)))
    assert {one["metadata"]["labels"]["cluster.x-k8s.io/provider"] for one in objects} == {f"{type}-remuda"}
    assert "${" not in json.dumps(objects)
    assert "remuda-system" in tools.clusterctl(*named, "--describe")


def test_providers_are_installed_on_kubernetes(config: Path, tmp_path: Path) -> None:
    """The core is there already. The image is not: that its program runs with these rights is shown elsewhere."""
    server = Upstream()
    programs = []
    try:
        core = ("-m", "remuda.cli.main", "manager", "--kubeconfig", str(server.kubeconfig), "--controllers", "core")
        programs.append(Program(tmp_path, "core", *core))
        tools = Tools(tmp_path, server.kubeconfig, "remuda-system", GIVEN)
        for kind in ("Issuer", "Certificate"):
            tools.kubectl("apply", "-f", "-", stdin=CERT_MANAGER.format(kind=kind, plural=f"{kind.lower()}s"))
        flags = [flag for type in TYPES for flag in (f"--{type}", "remuda")]
        tools.clusterctl("--config", str(with_core(config, tmp_path)), "init", *flags)
        noted = {one["metadata"]["name"] for one in tools.list("providers.clusterctl.cluster.x-k8s.io")}
        assert noted >= {f"{type}-remuda" for type in TYPES}
        tools.wait("crd", "-l", "cluster.x-k8s.io/provider=control-plane-remuda", "--for=condition=Established")
        (deployment,) = tools.list("deployments")
        assert deployment["spec"]["template"]["spec"]["containers"][0]["image"].endswith(f":{repository.version()}")
        account = "system:serviceaccount:remuda-system:remuda-manager"
        assert tools.kubectl("auth", "can-i", "create", "machines.cluster.x-k8s.io", "-A", "--as", account) == "yes\n"
    finally:
        for program in programs:
            program.stop()
        server.stop()


def with_core(config: Path, folder: Path) -> Path:
    """A config file by which clusterctl need not ask anybody about the core that is there."""
    place = folder / CORE.label / CORE.version
    place.mkdir(parents=True)
    major, minor, _ = CORE.version.removeprefix("v").split(".")
    series = [{"major": int(major), "minor": int(minor), "contract": "v1beta2"}]
    about = {"apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Metadata", "releaseSeries": series}
    (place / "metadata.yaml").write_text(yaml.safe_dump(about))
    (place / "core-components.yaml").write_text("")
    known = yaml.safe_load(config.read_text())
    core = {"name": CORE.name, "type": CORE.type, "url": str(place / "core-components.yaml")}
    path = folder / "clusterctl.yaml"
    path.write_text(yaml.safe_dump({"providers": [*known["providers"], core]}))
    return path
