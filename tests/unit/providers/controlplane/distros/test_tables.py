"""What is known of distributions."""

from __future__ import annotations

import pytest

from remuda.providers.controlplane import distros
from tests.unit.providers.controlplane.render import sample

DISTROS = [distros.of(distros.parse_version(version)) for version in sample.VERSIONS.values()]


@pytest.mark.parametrize("distro", DISTROS, ids=lambda distro: distro.name)
def test_a_server_takes_what_an_agent_takes(distro: distros.Distro) -> None:
    assert distro.agent_arguments.items() <= distro.server_arguments.items()


@pytest.mark.parametrize("distro", DISTROS, ids=lambda distro: distro.name)
def test_defaults_are_arguments(distro: distros.Distro) -> None:
    assert distro.defaults.keys() <= distro.server_arguments.keys()


def test_what_tells_k3s_and_rke2_apart() -> None:
    k3s, rke2, nano = DISTROS
    assert {"flannel-backend", "https-listen-port", "cluster-init"} <= k3s.server_arguments.keys()
    assert not {"flannel-backend", "https-listen-port", "cluster-init"} & rke2.server_arguments.keys()
    assert {"cni", "profile", "etcd-extra-mount", "audit-policy-file"} <= rke2.server_arguments.keys()
    assert not {"cni", "profile", "etcd-extra-mount", "audit-policy-file"} & k3s.server_arguments.keys()
    assert nano.server_arguments == k3s.server_arguments


@pytest.mark.parametrize("key", ["cluster-cidr", "tls-san", "etcd-s3", "kube-apiserver-arg", "agent-token"])
def test_an_agent_does_not_take_what_only_a_server_knows(key: str) -> None:
    for distro in DISTROS:
        assert key in distro.server_arguments
        assert key not in distro.agent_arguments
