"""The files of a host, and those that are taken away again."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import Cluster, ExtraFile, ExtraFiles
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.controlplane.render.files import stored_gzip
from remuda.providers.shared.types.configuration import EnvVar
from tests.unit.providers.controlplane.render import sample


def rendered(cluster: Cluster, role: str = "server", before: bytes = b"") -> bytes:
    return render.render(cluster, sample.host(role), sample.place(role), before=before)


def with_file(path: str, content: bytes = b"x") -> Cluster:
    return sample.with_(sample.plain(), files=[ExtraFiles(None, [ExtraFile(path=path, content=content)])])


def content_of(plan: bytes, path: str) -> bytes | None:
    found = plans.read(plan).file(path)
    return found.content if found is not None and not found.deleted else None


def test_a_file_that_vanishes_from_the_spec_is_taken_from_the_host() -> None:
    before = rendered(with_file("/etc/extra"))
    gone = plans.read(rendered(sample.plain(), before=before)).file("/etc/extra")
    assert gone is not None
    assert gone.deleted


def test_it_stays_taken_away_and_the_plan_stays_the_same() -> None:
    first = rendered(sample.plain(), before=rendered(with_file("/etc/extra")))
    assert rendered(sample.plain(), before=first) == first


def test_a_file_that_comes_back_is_written_again() -> None:
    gone = rendered(sample.plain(), before=rendered(with_file("/etc/extra")))
    assert content_of(rendered(with_file("/etc/extra", b"again"), before=gone), "/etc/extra") == b"again"


def test_a_certificate_of_a_server_is_never_taken_away() -> None:
    fewer = sample.with_(sample.plain(), authorities={"server/tls/server-ca.crt": sample.CERTIFICATE})
    after = plans.read(rendered(fewer, before=rendered(sample.plain())))
    assert not [file for file in after.files if file.deleted]


def test_an_emptied_manifest_is_written_empty_so_that_what_it_made_goes() -> None:
    before = rendered(sample.plain(additional_manifest="kind: Namespace", chart_values={"k3s-coredns": {}}))
    after = rendered(sample.plain(), before=before)
    folder = "/var/lib/rancher/k3s/server/manifests/rancher"
    assert content_of(before, f"{folder}/addons.yaml") == b"kind: Namespace"
    assert content_of(after, f"{folder}/addons.yaml") == b""
    assert content_of(after, f"{folder}/managed-chart-config.yaml") == b""


def test_a_file_of_the_users_cannot_stand_for_one_of_ours() -> None:
    path = "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"
    assert content_of(rendered(with_file(path, b"{}")), path) == content_of(rendered(sample.plain()), path)


def test_the_first_server_is_told_to_begin_and_the_others_by_whom_to_join() -> None:
    cluster = sample.plain()
    path = "/etc/rancher/k3s/remuda-servers"
    assert content_of(rendered(cluster, "init"), path) == b"init\n"
    assert content_of(rendered(cluster, "worker"), path) == b"https://10.0.0.5:6443\nhttps://10.0.0.6:6443\n"


@pytest.mark.parametrize("size", [0, 1, 0xFFFF, 0x10000, 200_000])
def test_what_snapshots_remember_is_gzip_that_everybody_reads(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    assert gzip.decompress(stored_gzip(content[:size])) == content[:size]


def test_snapshots_remember_what_the_cluster_was_to_be() -> None:
    cluster = sample.plain(machine_global_config={"debug": True}, provision_generation=4)
    path = "/var/lib/rancher/k3s/server/manifests/rancher/k3s-etcd-snapshot-extra-metadata.yaml"
    manifest = json.loads(content_of(rendered(cluster), path) or b"")
    remembered = gzip.decompress(base64.b64decode(manifest["data"]["provisioning-cluster-spec"]))
    assert json.loads(remembered) == {
        "kubernetesVersion": "v1.36.4+k3s1",
        "rkeConfig": {"machineGlobalConfig": {"debug": True}},
    }


def test_an_empty_variable_is_left_out_and_none_of_the_users_changes_ours() -> None:
    variables = [
        EnvVar(name="EMPTY"),
        EnvVar(name="REMUDA_UNIT", value="other"),
        EnvVar(name="CATTLE_AGENT_VAR_DIR", value="/x"),
        EnvVar(name="MINE", value="a=b"),
    ]
    found = plans.read(rendered(sample.plain(agent_env_vars=variables))).environment()
    assert found["REMUDA_UNIT"] == "k3s"
    assert found["MINE"] == "a=b"
    assert not {"EMPTY", "CATTLE_AGENT_VAR_DIR"} & found.keys()


def test_an_unknown_way_of_rendering_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot write plans of renderer 2"):
        rendered(sample.with_(sample.plain(), renderer=2))
