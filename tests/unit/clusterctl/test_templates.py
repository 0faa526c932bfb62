"""Templates of clusters: what they leave to be said, and that a server takes what comes of them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.capi import definitions as capi_definitions
from remuda.clusterctl import repository
from remuda.clusterctl.templates import Flavour, cluster_template, of_driver, variable
from remuda.kube.client import Target
from remuda.kube.errors import StatusError
from remuda.providers import setup as providers
from remuda.providers.machine import definitions as machine_definitions
from remuda.providers.machine import options
from remuda.providers.shared import drivers, names
from remuda.runtime.definitions import install
from tests.unit.apiserver.engine import Engine

Json = dict[str, Any]

DRIVERS = [flavour.driver for flavour in repository.flavours()]
GIVEN = {
    "CLUSTER_NAME": "prairie",
    "NAMESPACE": "default",
    "KUBERNETES_VERSION": "v1.36.4+k3s1",
    "CONTROL_PLANE_MACHINE_COUNT": "3",
    "WORKER_MACHINE_COUNT": "0",
    "AMAZONEC2_AMI": "ami-0123456789",
}
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)(:=([^}]*))?\}")


def variables(text: str) -> dict[str, str | None]:
    """With their defaults; None: there is none."""
    return {name: default if said else None for name, said, default in _VARIABLE.findall(text)}


def filled(text: str, given: Mapping[str, str]) -> list[Json]:
    """As clusterctl does it, for what templates of ours contain."""
    return list(yaml.safe_load_all(_VARIABLE.sub(lambda found: given.get(found[1]) or found[3], text)))


def template(driver: str) -> str:
    return cluster_template(of_driver(drivers.find(driver)))


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = await Engine.open(tmp_path / "data")
    kinds = [
        one for driver in DRIVERS for one in machine_definitions.of_driver(options.of_driver(drivers.find(driver)))
    ]
    await install(engine.client, [*capi_definitions.definitions(), *providers.definitions(), *kinds])
    yield engine
    await engine.close()


async def make(engine: Engine, objects: list[Json]) -> None:
    for obj in objects:
        target = Target(obj["apiVersion"], f"{obj['kind'].lower()}s")
        await engine.client.create(target, obj["metadata"]["namespace"], obj)


async def test_api_server_accepts_every_template_with_defaults(engine: Engine) -> None:
    for driver in DRIVERS:
        await make(engine, filled(template(driver), {**GIVEN, "CLUSTER_NAME": driver}))


async def test_template_variable_is_rendered_with_its_schema_type(engine: Engine) -> None:
    given = {**GIVEN, "NSPAWN_MEMORY": "2048", "NSPAWN_DNS": "[10.0.0.1, 10.0.0.2]", "NSPAWN_IMAGE": "/srv/image"}
    objects = filled(template("nspawn"), given)
    await make(engine, objects)
    (spec, _) = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "NspawnMachineTemplate"]
    assert (spec["memory"], spec["dns"], spec["image"]) == (2048, ["10.0.0.1", "10.0.0.2"], "/srv/image")
    with pytest.raises(StatusError, match="memory"):
        await make(engine, filled(template("nspawn"), {**given, "CLUSTER_NAME": "other", "NSPAWN_MEMORY": "much"}))


@pytest.mark.parametrize("driver", DRIVERS)
def test_only_required_driver_options_lack_a_default(driver: str) -> None:
    demanded = {variable(driver, name) for name in options.of_driver(drivers.find(driver)).required}
    found = variables(template(driver))
    assert {name for name, default in found.items() if default is None} - GIVEN.keys() == demanded - GIVEN.keys()
    assert "" not in found.values(), "clusterctl takes a default of nothing for none"


@pytest.mark.parametrize("driver", DRIVERS)
def test_secret_driver_options_are_not_template_variables(driver: str) -> None:
    secret = {variable(driver, one.name) for one in options.of_driver(drivers.find(driver)).options if one.secret}
    assert not secret & variables(template(driver)).keys()


def test_credential_variable_sets_cloud_credential_secret_name() -> None:
    objects = filled(template("amazonec2"), {**GIVEN, "AMAZONEC2_CREDENTIAL": "cloud"})
    found = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Amazonec2MachineTemplate"]
    assert [one["common"] for one in found] == [{"cloudCredentialSecretName": "cloud"}] * 2


def test_server_and_worker_deployments_differ_by_role_labels() -> None:
    deployments = {
        one["metadata"]["name"]: one for one in filled(template("process"), GIVEN) if one["kind"] == "MachineDeployment"
    }
    labels = {name: one["spec"]["template"]["metadata"]["labels"] for name, one in deployments.items()}
    roles = {name: {key for key in found if key.endswith("-role")} for name, found in labels.items()}
    assert roles == {
        "prairie-servers": {names.ETCD_ROLE, names.CONTROL_PLANE_ROLE},
        "prairie-workers": {names.WORKER_ROLE},
    }
    assert [one["spec"]["replicas"] for one in deployments.values()] == [3, 0]
    for name, one in deployments.items():
        assert one["spec"]["selector"]["matchLabels"].items() <= labels[name].items()
        assert "version" not in one["spec"]["template"]["spec"], "a change of it would replace every machine"


def test_rke_cluster_requests_infrastructure_of_drivers_that_support_clusters() -> None:
    def infrastructure(driver: str) -> Json:
        (found,) = [one["spec"] for one in filled(template(driver), GIVEN) if one["kind"] == "RKECluster"]
        return dict(found)

    assert infrastructure("nspawn") == {"infrastructure": {"driver": "nspawn", "options": {"subnet": ""}}}
    assert infrastructure("existing") == {}


def test_template_omits_driver_default_that_needs_escaping() -> None:
    properties = {
        "plain": {"type": "string", "default": "a/b-1.2"},
        "odd": {"type": "string", "default": "${HOME}"},
        "list": {"type": "array", "default": ["a", 'b"']},
        "mapped": {"type": "object"},
    }
    found = variables(cluster_template(Flavour(driver="other", properties=properties)))
    assert {name for name in found if name.startswith("OTHER_")} == {"OTHER_PLAIN"}
