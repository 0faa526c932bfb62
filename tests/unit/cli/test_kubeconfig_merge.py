"""A kubeconfig added to the file that a user has: nothing of it is lost, and nobody else can read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from remuda.cli.kubeconfig_merge import MergeRefused, merge_into

Json = dict[str, Any]


def config(name: str, server: str, token: str = "one") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": f"me@{name}", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"me@{name}"}}],
        "current-context": name,
    }


def test_merge_creates_a_private_file_with_a_current_context(tmp_path: Path) -> None:
    path = tmp_path / ".kube" / "config"
    assert merge_into(path, config("prairie", "https://a/1")) == "prairie"
    assert yaml.safe_load(path.read_text()) == config("prairie", "https://a/1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["config"]


def test_merge_keeps_other_entries_and_the_current_context(tmp_path: Path) -> None:
    real, path = tmp_path / "real", tmp_path / "config"
    path.symlink_to(real)
    real.write_text(yaml.safe_dump({**config("work", "https://b"), "preferences": {"colors": True}}))
    real.chmod(0o644)
    assert merge_into(path, config("prairie", "https://a/1", "old")) == "work"
    assert merge_into(path, config("prairie", "https://a/1", "new")) == "work"
    found = yaml.safe_load(real.read_text())
    assert path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert found["preferences"] == {"colors": True}
    assert [one["name"] for one in found["contexts"]] == ["work", "prairie"]
    assert [one["user"]["token"] for one in found["users"]] == ["one", "new"]


def test_merge_refuses_a_name_that_means_another_cluster(tmp_path: Path) -> None:
    path = tmp_path / "config"
    text = yaml.safe_dump(config("prairie", "https://b"))
    path.write_text(text)
    with pytest.raises(MergeRefused, match=r"context prairie for another cluster \(https://b\).*--context"):
        merge_into(path, config("prairie", "https://a/1"))
    assert path.read_text() == text


@pytest.mark.parametrize(("text", "said"), [("a: [", "not valid YAML"), ("[]", "no kubeconfig|not a kubeconfig")])
def test_merge_refuses_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(MergeRefused, match=said):
        merge_into(path, config("prairie", "https://a/1"))
    assert path.read_text() == text
    assert os.listdir(tmp_path) == ["config"]


def test_merge_respects_the_lock_of_kubectl(tmp_path: Path) -> None:
    (tmp_path / "config.lock").touch()
    with pytest.raises(MergeRefused, match=r"another program is changing"):
        merge_into(tmp_path / "config", config("prairie", "https://a/1"))
    assert (tmp_path / "config.lock").exists()
