"""User data: our script, and the user's own beside it."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from remuda.providers.shared.drivers.spi import BadOptions
from remuda.providers.shared.jobs.user_data import compose, fit

SCRIPT = b"#!/bin/sh\necho installing\n"
PATH = "/usr/local/custom_script/install.sh"


def read(user_data: bytes) -> dict[str, Any]:
    assert user_data.startswith(b"#cloud-config\n")
    found: dict[str, Any] = yaml.safe_load(user_data)
    return found


def content(entry: dict[str, Any]) -> bytes:
    assert entry["encoding"] == "gzip+b64"
    return gzip.decompress(base64.b64decode(entry["content"]))


@given(st.binary(max_size=500))
def test_script_arrives_byte_for_byte(script: bytes) -> None:
    config = read(compose(script, "host-1"))
    (entry,) = config["write_files"]
    assert content(entry) == script
    assert (entry["path"], entry["permissions"]) == (PATH, "0700")
    assert config["runcmd"] == [f"sh {PATH}"]
    assert config["hostname"] == "host-1"


def test_user_script_runs_first() -> None:
    (entry,) = read(compose(SCRIPT, "h", "#!/bin/bash\necho mine\n"))["write_files"]
    assert content(entry) == b"echo mine\n\n\n" + SCRIPT


def test_user_cloud_config_is_merged() -> None:
    own = "#cloud-config\nhostname: theirs\npackages: [jq]\nruncmd: [ls]\nwrite_files:\n- {path: /a, content: b}\n"
    config = read(compose(SCRIPT, "ours", own))
    assert config["packages"] == ["jq"]
    assert config["hostname"] == "theirs"
    assert config["runcmd"] == ["ls", f"sh {PATH}"]
    assert [entry["path"] for entry in config["write_files"]] == ["/a", PATH]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("echo hello", "must start with #! or #cloud-config"),
        ("#cloud-config\na: [hush", r"invalid YAML \(line"),
        ("#cloud-config\n- a\n", "a map"),
        ("#cloud-config\nruncmd: ls\n", "runcmd must be a list"),
    ],
)
def test_invalid_user_data_is_rejected_without_leaking_content(own: str, words: str) -> None:
    with pytest.raises(BadOptions, match=words) as refused:
        compose(SCRIPT, "h", own)
    assert "hush" not in str(refused.value)


def test_large_user_data_is_compressed_or_rejected() -> None:
    assert fit(b"a" * 100, 100) == b"a" * 100
    assert gzip.decompress(fit(b"a" * 1000, 100)) == b"a" * 1000
    with pytest.raises(BadOptions, match="the limit is 10"):
        fit(b"a" * 1000, 10)
