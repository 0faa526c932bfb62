"""What is known of distributions."""

from __future__ import annotations

import pytest

from remuda.providers.controlplane.render.config import SECURE_PORTS
from remuda.providers.shared import distros
from tests.unit.providers.controlplane.render import sample

DISTROS = [distros.of(distros.parse_version(version)) for version in sample.VERSIONS.values()]


@pytest.mark.parametrize("distro", DISTROS, ids=lambda distro: distro.name)
def test_server_arguments_include_agent_arguments(distro: distros.Distro) -> None:
    assert distro.agent_arguments.items() <= distro.server_arguments.items()


@pytest.mark.parametrize("distro", DISTROS, ids=lambda distro: distro.name)
def test_defaults_are_server_arguments(distro: distros.Distro) -> None:
    assert distro.defaults.keys() <= distro.server_arguments.keys()


def test_k3s_and_rke2_arguments_differ() -> None:
    k3s, rke2, nano = DISTROS
    assert {"flannel-backend", "https-listen-port", "cluster-init"} <= k3s.server_arguments.keys()
    assert not {"flannel-backend", "https-listen-port", "cluster-init"} & rke2.server_arguments.keys()
    assert {"cni", "profile", "etcd-extra-mount", "audit-policy-file"} <= rke2.server_arguments.keys()
    assert not {"cni", "profile", "etcd-extra-mount", "audit-policy-file"} & k3s.server_arguments.keys()
    assert nano.server_arguments == k3s.server_arguments


@pytest.mark.parametrize("key", ["cluster-cidr", "tls-san", "etcd-s3", "kube-apiserver-arg", "agent-token"])
def test_agent_arguments_exclude_server_only_keys(key: str) -> None:
    for distro in DISTROS:
        assert key in distro.server_arguments
        assert key not in distro.agent_arguments


# ---- contracts ---------------------------------------------------------------------------------------------------

CONTRACTS = [distro for distro in DISTROS if distro.name != "nano"]
MINORS = range(30, 37)


@pytest.mark.parametrize("distro", CONTRACTS, ids=lambda distro: distro.name)
def test_every_contract_fact_has_source_and_version(distro: distros.Distro) -> None:
    facts = distro.contract.facts()
    assert {type(fact).__name__ for fact in facts} >= {
        "Keys",
        "Unit",
        "Script",
        "Port",
        "Health",
        "Archive",
        "OwnedFile",
    }
    for fact in facts:
        assert fact.source
        distros.parse_version(fact.version)
        assert [distros.parse_version(f"v{first}+k3s1") for first in fact.since] == sorted(
            distros.parse_version(f"v{first}+k3s1") for first in fact.since
        )


@pytest.mark.parametrize("distro", CONTRACTS, ids=lambda distro: distro.name)
def test_distro_tables_match_contract(distro: distros.Distro) -> None:
    contract = distro.contract
    assert {unit.role: unit.name for unit in contract.units} == {
        "server": distro.server_unit,
        "agent": distro.agent_unit,
    }
    ports = {port.name: port.number for port in contract.ports}
    assert (ports["supervisor"], ports["kube-apiserver"]) == (distro.supervisor_port, distro.api_port)
    assert {name: str(ports[name]) for name in SECURE_PORTS} == SECURE_PORTS
    assert {limit.key for limit in contract.limits} <= distro.server_arguments.keys()


@pytest.mark.parametrize("distro", CONTRACTS, ids=lambda distro: distro.name)
@pytest.mark.parametrize("minor", MINORS)
def test_versioned_agent_arguments_are_subset_of_server_arguments(distro: distros.Distro, minor: int) -> None:
    version = distros.parse_version(f"v1.{minor}.0+{distro.name}{'r1' if distro.name == 'rke2' else '1'}")
    server, agent = distro.arguments(True, version), distro.arguments(False, version)
    assert agent.items() <= server.items()
    assert "prime" not in agent
    assert ("helm-controller-arg" in server) is False  # since 1.36.3 and later patches of others


@pytest.mark.parametrize(
    ("version", "has_it"),
    [("1.30.11", False), ("1.30.12", True), ("1.31.7", False), ("1.31.8", True), ("1.33.0", True), ("1.36.9", True)],
)
def test_backported_fact_holds_from_first_patch_of_each_minor(version: str, has_it: bool) -> None:
    k3s = DISTROS[0]
    found = k3s.arguments(True, distros.parse_version(f"v{version}+k3s1"))
    assert ("secrets-encryption-provider" in found) is has_it
