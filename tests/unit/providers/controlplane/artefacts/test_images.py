"""Which archives of images a configuration needs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from remuda.kube.wait import Wait
from remuda.providers.controlplane import installation
from remuda.providers.shared import distros
from remuda.providers.shared.types.controlplane import Installer, RKEControlPlane
from remuda.runtime.tasks import Tasks

VERSION = "v1.36.4+rke2r1"


def plane(version: str = VERSION, *, pinned: Installer | None = None, **config: Any) -> RKEControlPlane:
    registries = config.pop("registries", None)
    spec = {"kubernetesVersion": version, "machineGlobalConfig": config, "registries": registries}
    status = {"installer": msgspec.to_builtins(pinned)} if pinned is not None else {}
    return msgspec.convert(
        {"metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": status}, RKEControlPlane
    )


def needed(version: str = VERSION, **config: Any) -> set[str]:
    parsed = distros.parse_version(version)
    return installation.needed_images(distros.of(parsed), parsed, plane(version, **config).spec)


def files(*names: str) -> dict[str, str]:
    return {f"images{name}.tar.zst": name.strip("-") or "all" for name in names} | {"rke2.tar.gz": "program"}


async def installer(value: RKEControlPlane, **archs: dict[str, str]) -> Installer | Wait:
    version = distros.parse_version(value.spec.kubernetes_version)
    bundles = installation.Bundles(None, Tasks(), lambda key: None)
    return await installation.installer(value, distros.of(version), version, lambda *_: archs, bundles)


@pytest.mark.parametrize(
    ("version", "config", "sets"),
    [
        (VERSION, {}, {"core", "calico", "traefik"}),
        ("v1.35.1+rke2r1", {}, {"core", "calico", "ingress-nginx"}),
        (VERSION, {"cni": "canal"}, {"core", "canal", "traefik"}),
        (VERSION, {"cni": ["multus", "cilium"]}, {"core", "multus", "cilium", "traefik"}),
        (VERSION, {"cni": "multus,none", "ingress-controller": "none"}, {"core", "multus"}),
        (VERSION, {"ingress-controller": ["ingress-nginx"]}, {"core", "calico", "ingress-nginx"}),
        (VERSION, {"disable": "rke2-traefik"}, {"core", "calico"}),
        (VERSION, {"cloud-provider-name": "rancher-vsphere"}, {"core", "calico", "traefik", "vsphere"}),
        (VERSION, {"cloud-provider-name": "external"}, {"core", "calico", "traefik"}),
        ("v1.36.4+k3s1", {}, {"core"}),
    ],
)
def test_configuration_and_version_decide_which_images_are_needed(
    version: str, config: dict[str, Any], sets: set[str]
) -> None:
    assert needed(version, **config) == sets


async def test_default_network_requires_calico_image_archive() -> None:
    """rke2-images is core and canal; our default is calico."""
    found = await installer(plane(), amd64=files(""), arm64=files("-core", "-calico"))
    assert isinstance(found, Wait)
    assert found.reason == "ImagesMissing"
    assert "none for calico" in found.missing
    assert found.then == f"remuda artefacts add rke2 {VERSION} rke2-images-calico.linux-amd64.tar.zst"
    assert isinstance(await installer(plane(cni="canal"), amd64=files("")), Installer)


@pytest.mark.parametrize(
    "config",
    [
        {"system-default-registry": "registry.example"},
        {"registries": {"mirrors": {"docker.io": {"endpoint": ["https://m.example"]}}}},
    ],
)
async def test_missing_archives_are_accepted_when_images_can_be_pulled(config: dict[str, Any]) -> None:
    assert isinstance(await installer(plane(**config), amd64=files("")), Installer)
    assert isinstance(await installer(plane(), amd64=files()), Installer)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({}, {"images-core.tar.zst", "images-calico.tar.zst"}),
        ({"cni": "canal"}, {"images.tar.zst"}),
        ({"cni": "cilium"}, {"images-core.tar.zst", "images-cilium.tar.zst"}),
    ],
)
async def test_nodes_get_minimal_set_of_image_archives(config: dict[str, Any], names: set[str]) -> None:
    found = await installer(plane(**config), amd64=files("", "-core", "-canal", "-calico", "-cilium"))
    assert isinstance(found, Installer)
    assert set(found.artefacts["amd64"]) == {"rke2.tar.gz", *names}


async def test_pinned_installer_gains_archives_only_when_needed_and_available() -> None:
    pinned = Installer(version=VERSION, artefacts={"amd64": files("-core", "-calico")})
    wants_more = plane(pinned=pinned, cni="multus,calico")
    assert await installer(wants_more, amd64=files("-core", "-calico")) == pinned
    assert await installer(plane(pinned=pinned), amd64=files("-core", "-calico", "-multus")) == pinned
    found = await installer(wants_more, amd64=files("-core", "-calico", "-multus"))
    assert isinstance(found, Installer)
    assert "images-multus.tar.zst" in found.artefacts["amd64"]
