"""Instructions that bring an image: from a local archive, and from a real registry behind TLS, password and mirror."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from remuda.agent.images.platforms import this_host
from tests.interop.system_agent.conftest import Host
from tests.lab.agents import checksum, outputs
from tests.lab.images import Image, docker_save, entry, oci_layout, symbolic_link, tar
from tests.lab.registry import RealRegistry

IMAGE = Image(
    [
        tar(
            entry("run.sh", b"#!/bin/sh\necho old\n", 0o755),
            entry("gone", b""),
            entry("bin/tool", b"#!/bin/sh\necho tool\n", 0o777),
        ),
        tar(
            entry("run.sh", b'#!/bin/sh\npwd\n"$CATTLE_AGENT_EXECUTION_PWD/bin/tool" && ./alias && ls\n', 0o755),
            entry(".wh.gone"),
            symbolic_link("alias", "bin/tool"),
        ),
    ],
    architecture=this_host().architecture,
)
NAME = "registry.invalid/team/installer:v1"
SAID = [b"tool", b"tool", b"alias", b"bin", b"run.sh"]


def said(host: Host, image: str, **instruction: object) -> list[bytes]:
    plan = {"instructions": [{"image": image, "name": "x", "saveOutput": True, **instruction}]}
    lines = outputs(host.applied(plan)["applied-output"])["x"].splitlines()
    if "command" not in instruction:
        assert lines.pop(0).endswith(checksum(plan) + b"_0")
    return lines


def test_local_archive_image_by_tag_needs_no_network(host: Host) -> None:
    folder = host.agent.folder / "images" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.tar").write_bytes(docker_save(IMAGE, NAME))
    assert said(host, NAME) == SAID
    assert said(host, NAME, command="sh", args=["-c", "cat bin/tool"]) == [b"#!/bin/sh", b"echo tool"]


def test_local_archive_image_by_digest_has_listed_outcome_per_agent(host: Host) -> None:
    folder = host.agent.folder / "images"
    folder.mkdir()
    (folder / "a.tar").write_bytes(oci_layout({NAME: IMAGE}))
    name = f"registry.invalid/team/installer@{IMAGE.digest}"
    if host.expected("an image by digest from a local archive") == "succeeded":
        assert said(host, name) == SAID
    else:
        host.failed({"instructions": [{"image": name}]})


@pytest.fixture(scope="module")
def registry() -> Iterator[RealRegistry]:
    server = RealRegistry()
    server.push("mirrored/installer", IMAGE, "v1")
    yield server
    server.stop()


def test_image_is_pulled_from_private_registry_through_mirror(host: Host, registry: RealRegistry) -> None:
    registries = host.agent.folder / "registries.yaml"
    registries.write_text(registry.access(mirror_of="registry.invalid", rewrite={"^team/(.*)$": "mirrored/$1"}))
    assert said(host, NAME) == SAID
