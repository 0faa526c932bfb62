"""Bootstrap data in the form a server's infrastructure takes."""

from __future__ import annotations

import base64
import gzip

import pytest
import yaml

from remuda.capi.types import Reference
from remuda.providers.bootstrap import data
from remuda.providers.shared import names

SCRIPT = "#!/bin/sh\necho 'hello'\n"


@pytest.mark.parametrize(
    ("group", "kind", "form"),
    [
        (names.MACHINE_GROUP, "NspawnMachine", "script"),
        (names.GROUP, "CustomMachine", "none"),
        ("infrastructure.cluster.x-k8s.io", "DockerMachine", "cloud-config"),
    ],
)
def test_infrastructure_kind_selects_data_format(group: str, kind: str, form: str) -> None:
    assert data.form(Reference(api_group=group, kind=kind, name="x")) == form


def test_own_machines_get_unmodified_script() -> None:
    assert data.render("script", SCRIPT, "ignored") == data.Data(SCRIPT, "script")


def test_custom_machine_data_contains_no_script() -> None:
    assert SCRIPT not in data.render("none", SCRIPT, "").value


def test_cloud_config_runs_script_before_user_commands() -> None:
    config = yaml.safe_load(
        data.cloud_config(SCRIPT, "#cloud-config\nwrite_files:\n- path: /a\nruncmd: [date]\nhostname: h\n")
    )
    ours, users = config["write_files"]
    assert gzip.decompress(base64.b64decode(ours["content"])).decode() == SCRIPT
    assert (ours["encoding"], ours["permissions"], users) == ("gz+b64", "0700", {"path": "/a"})
    assert config["runcmd"] == [["sh", ours["path"]], "date"]
    assert config["hostname"] == "h"


def test_cloud_config_is_deterministic() -> None:
    assert data.cloud_config(SCRIPT, "") == data.cloud_config(SCRIPT, "")


def test_jinja_template_header_is_kept() -> None:
    made = data.cloud_config(SCRIPT, "## template: jinja\n#cloud-config\nhostname: '{{ v1.name }}'\n")
    assert made.startswith("## template: jinja\n#cloud-config\n")


@pytest.mark.parametrize(
    ("userdata", "why"),
    [
        ("#!/bin/sh\n", "must begin with #cloud-config"),
        ("#cloud-config\n- a\n", "must be a map"),
        ("#cloud-config\nruncmd: date\n", "runcmd in spec.userdata.inlineUserdata must be a list"),
        ("#cloud-config\npassword: hunter2\n a: [", "is not YAML"),
        ("#cloud-config\n" + "#" * 70_000, "longer than"),
        ("#cloud-config\na: " + "[" * 60_000, "nested more than"),  # which ended the process
        ("#cloud-config\na: &x " + "y" * 30_000 + "\nb: [" + "*x," * 9_000 + "]", "repeat too much text"),  # 270 MB
        ("#cloud-config\nborn: 2020-99-01\npassword: hunter2\n", "is not YAML: a value does not match its type"),
    ],
)
def test_invalid_user_data_is_rejected_without_leaking_content(userdata: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        data.cloud_config(SCRIPT, userdata)
    assert "hunter2" not in str(caught.value)
