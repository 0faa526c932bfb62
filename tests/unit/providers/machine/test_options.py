"""From a driver's options, or a program's flags, to one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest

from remuda.kube.objects import Field
from remuda.providers.machine.options import BadModel, Flag, camel, kebab, of_driver, of_flags
from remuda.providers.shared import drivers
from remuda.providers.shared.drivers.spi import Driver, Options


class _Options(Options):
    region: Annotated[str, Field("Where.", required=True)] = ""
    root_size: Annotated[int, Field("In GB.", minimum=1)] = 16
    volume_type: Annotated[Literal["gp2", "gp3"], Field("Of the disk.")] = "gp2"
    secret_key: Annotated[str, Field("Who pays.", format="password", required=True)] = ""
    tags: Annotated[Mapping[str, str], Field("Marks.")] = {}
    ports: Annotated[Sequence[int], Field("Open ones.")] = ()
    spot: Annotated[bool, Field("Cheaper.")] = False


class _Driver(Driver[Any]):
    name = "toy"
    doc = "Toys."
    options_type = _Options
    credential_fields = ("secretKey",)


MODEL = of_driver(_Driver)


def test_option_model_is_derived_from_options_type() -> None:
    found = {option.name: option for option in MODEL.options}
    assert list(found) == ["region", "rootSize", "volumeType", "secretKey", "tags", "ports", "spot"]
    assert found["rootSize"].flag == "--toy-root-size"
    assert found["rootSize"].default == 16
    assert found["secretKey"].secret
    assert found["volumeType"].type == "`gp2` or `gp3`"
    assert found["ports"].type == "list of integers"
    assert found["tags"].type == "map of strings"
    assert found["spot"].default is None


def test_credential_options_are_not_required() -> None:
    assert MODEL.required == ["region"]
    assert MODEL.credentials == ("secretKey",)


def test_defaults_are_only_in_config_schema() -> None:
    assert MODEL.properties(defaults=True)["rootSize"] == {
        "type": "integer",
        "description": "In GB.",
        "minimum": 1,
        "default": 16,
    }
    assert all("default" not in shape for shape in MODEL.properties(defaults=False).values())


def test_flags_lose_their_prefix_and_keep_their_types() -> None:
    model = of_flags(
        "digitalocean",
        [
            Flag(name="digitalocean-access-token", type="string", doc="Token."),
            Flag(name="digitalocean-ssh-port", type="integer", default=22),
            Flag(name="digitalocean-ipv6", type="boolean"),
            Flag(name="digitalocean-tags", type="strings", default=["a"]),
            Flag(name="digitalocean-ssh-key-path", type="string"),
        ],
        credentials=("accessToken",),
        passwords=("accessToken",),
        files={"sshKeyContents": "sshKeyPath"},
    )
    shapes = model.properties(defaults=True)
    assert shapes["accessToken"] == {"type": "string", "description": "Token.", "format": "password"}
    assert shapes["sshPort"]["x-kubernetes-int-or-string"] is True
    assert shapes["sshPort"]["default"] == "22", "as text: so Rancher's manifests have it"
    assert shapes["ipv6"] == {"type": "boolean"}
    assert shapes["tags"]["default"] == ["a"]
    assert "sshKeyPath" not in shapes
    assert shapes["sshKeyContents"]["format"] == "password", "a key is a secret whatever the driver says"
    assert model.find("sshKeyContents").flag == "--digitalocean-ssh-key-path"  # type: ignore[union-attr]


@pytest.mark.parametrize("flag", ["x-ssh-password", "x-root-pass", "x-application-credential-secret", "x-token"])
def test_flag_with_secret_name_is_secret(flag: str) -> None:
    (option,) = of_flags("x", [Flag(name=flag, type="string")]).options
    assert option.secret
    assert option.schema["format"] == "password"


def test_fingerprint_flag_is_not_secret() -> None:
    (option,) = of_flags("x", [Flag(name="x-ssh-key-fingerprint", type="string")]).options
    assert not option.secret


@pytest.mark.parametrize(
    ("flag", "shown"), [("plain", "'plain'"), ("x-", "'x-'"), ("x-metadata", "'metadata'"), ("x-common", "'common'")]
)
def test_flags_that_cannot_be_fields_are_rejected(flag: str, shown: str) -> None:
    with pytest.raises(BadModel, match=shown):
        of_flags("x", [Flag(name=flag, type="string")])


def test_credential_field_must_be_an_option() -> None:
    class Wrong(_Driver):
        credential_fields = ("nothing",)

    with pytest.raises(BadModel, match="nothing"):
        of_driver(Wrong)


@pytest.mark.parametrize(
    ("name", "flag"), [("sshUser", "ssh-user"), ("ami", "ami"), ("httpProtocolIpv6", "http-protocol-ipv6")]
)
def test_kebab_and_camel_names_convert_both_ways(name: str, flag: str) -> None:
    assert kebab(name) == flag
    assert camel(flag) == name


@pytest.mark.parametrize("name", drivers.names())
def test_every_built_in_driver_documents_its_options(name: str) -> None:
    model = of_driver(drivers.find(name))
    assert model.doc
    for option in model.options:
        assert option.doc, f"{name}: {option.name} says nothing of itself"
        assert option.flag.startswith(f"--{name}-")


@pytest.mark.parametrize("name", drivers.names())
def test_built_in_option_names_match_their_flags(name: str) -> None:
    """vpcId, not vpcID: manifests for Rancher have the former."""
    found = [option.name for option in of_driver(drivers.find(name)).options]
    assert found == [camel(kebab(option)) for option in found]
