"""The files of a host, and those that are taken away again."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import ClusterFacts, ExtraFile, ExtraFiles
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.controlplane.render.files import stored_gzip
from remuda.providers.shared.types.configuration import EnvVar
from tests.unit.providers.controlplane.render import sample


def rendered(cluster: ClusterFacts, role: str = "server", before: bytes = b"") -> bytes:
    return render.render(cluster, sample.host(role), sample.place(role), before=before)


def with_file(path: str, content: bytes = b"x") -> ClusterFacts:
    return sample.with_(sample.plain(), files=[ExtraFiles(None, [ExtraFile(path=path, content=content)])])


def content_of(plan: bytes, path: str) -> bytes | None:
    found = plans.read(plan).file(path)
    return found.content if found is not None and not found.deleted else None


def test_file_removed_from_spec_is_deleted_on_host() -> None:
    before = rendered(with_file("/etc/extra"))
    gone = plans.read(rendered(sample.plain(), before=before)).file("/etc/extra")
    assert gone is not None
    assert gone.deleted


def test_file_deletion_keeps_plan_stable() -> None:
    first = rendered(sample.plain(), before=rendered(with_file("/etc/extra")))
    assert rendered(sample.plain(), before=first) == first


def test_readded_file_is_written_again() -> None:
    gone = rendered(sample.plain(), before=rendered(with_file("/etc/extra")))
    assert content_of(rendered(with_file("/etc/extra", b"again"), before=gone), "/etc/extra") == b"again"


def test_server_certificates_are_never_deleted() -> None:
    fewer = sample.with_(sample.plain(), authorities={"server/tls/server-ca.crt": sample.CERTIFICATE})
    after = plans.read(rendered(fewer, before=rendered(sample.plain())))
    assert not [file for file in after.files if file.deleted]


def test_removed_manifest_is_written_empty() -> None:
    before = rendered(sample.plain(additional_manifest="kind: Namespace", chart_values={"k3s-coredns": {}}))
    after = rendered(sample.plain(), before=before)
    folder = "/var/lib/rancher/k3s/server/manifests/rancher"
    assert content_of(before, f"{folder}/addons.yaml") == b"kind: Namespace"
    assert content_of(after, f"{folder}/addons.yaml") == b""
    assert content_of(after, f"{folder}/managed-chart-config.yaml") == b""


def test_user_file_cannot_replace_managed_file() -> None:
    path = "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"
    assert content_of(rendered(with_file(path, b"{}")), path) == content_of(rendered(sample.plain()), path)


def test_servers_file_marks_init_or_lists_join_servers() -> None:
    cluster = sample.plain()
    path = "/etc/rancher/k3s/remuda-servers"
    assert content_of(rendered(cluster, "init"), path) == b"init\n"
    assert content_of(rendered(cluster, "worker"), path) == b"https://10.0.0.5:6443\nhttps://10.0.0.6:6443\n"


@pytest.mark.parametrize("size", [0, 1, 0xFFFF, 0x10000, 200_000])
def test_stored_gzip_is_readable_at_any_size(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    assert gzip.decompress(stored_gzip(content[:size])) == content[:size]


def test_snapshot_metadata_contains_cluster_spec() -> None:
    cluster = sample.plain(machine_global_config={"debug": True}, provision_generation=4)
    path = "/var/lib/rancher/k3s/server/manifests/rancher/k3s-etcd-snapshot-extra-metadata.yaml"
    manifest = json.loads(content_of(rendered(cluster), path) or b"")
    remembered = gzip.decompress(base64.b64decode(manifest["data"]["provisioning-cluster-spec"]))
    assert json.loads(remembered) == {
        "kubernetesVersion": "v1.36.4+k3s1",
        "rkeConfig": {"machineGlobalConfig": {"debug": True}},
    }


def test_empty_and_reserved_variables_are_ignored() -> None:
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


def test_unknown_renderer_version_is_rejected() -> None:
    with pytest.raises(ValueError, match="cannot write plans of renderer 2"):
        rendered(sample.with_(sample.plain(), renderer=2))
