"""`remuda diagnose`: secrets of every sort are planted in a real server, and none of them is in the bundle; what helps
is."""

from __future__ import annotations

import base64
import gzip
import json
import secrets
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from remuda.access import definitions, tokens
from remuda.access.types import TOKEN, USER
from remuda.kube.core import JOBS, NAMESPACES, SECRETS
from remuda.providers.shared import names
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine, Json
from tests.controllers.program import Ended, remuda
from tests.controllers.provisioning_harness import CONFIG, EVENTS, ProvisioningHarness, pool

PEM = "-----BEGIN EC PRIVATE KEY-----\n{body}\n-----END EC PRIVATE KEY-----\n"


class Planted:
    """Values that nobody may see, by what they are."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def __call__(self, what: str, form: str = "{}") -> str:
        """The secret in the form it is planted in; only the secret itself is looked for."""
        value = self.values.setdefault(what, f"{what.replace(' ', '')}{secrets.token_hex(8)}")
        return form.format(value)


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def secret(name: str, type: str = "Opaque", labels: Json | None = None, **data: str | bytes) -> Json:
    values = {key.replace("__", "-"): encoded(value) for key, value in data.items()}
    return {"metadata": {"name": name, "labels": labels or {}}, "type": type, "data": values}


def plan(hidden: Planted) -> bytes:
    config = f"server: https://10.0.0.1:9345\ntoken: {hidden('join token')}\nagent-token: {hidden('agent token')}\n"
    key = PEM.format(body=hidden("plan key", "MHcCAQEEI{}"))
    return json.dumps(
        {
            "files": [
                {"content": encoded(config), "path": "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"},
                {"content": encoded(key), "path": "/var/lib/rancher/k3s/server/tls/service.key", "permissions": "0600"},
            ],
            "instructions": [
                {
                    "name": "install",
                    "command": "sh",
                    "args": ["-c", f"run.sh --registration-token {hidden('argument')}"],
                    "env": [f"K3S_TOKEN={hidden('environment of a plan')}", "RESTART_STAMP=abc"],
                }
            ],
            "probes": {"kubelet": {"httpGet": {"url": "http://127.0.0.1:10248/healthz"}}},
        }
    ).encode()


@pytest_asyncio.fixture(loop_scope="session")
async def harness(engine: Engine) -> ProvisioningHarness:
    await engine.install(definitions.definitions())
    return await ProvisioningHarness.with_one_server(engine)


async def plant(harness: ProvisioningHarness, hidden: Planted) -> None:
    engine, place = harness.engine, harness.namespace
    own = {names.CLUSTER_NAME: "prairie"}
    kubeconfig = f"apiVersion: v1\nusers: [{{name: a, user: {{token: {hidden('kubeconfig token')}}}}}]\nclusters: []\n"
    script = f"#!/bin/sh\nset -e\nexport CATTLE_TOKEN={hidden('bootstrap token')}\ncurl --insecure x | sh\n"
    for one in (
        secret("prairie-any", password=hidden("opaque password"), user="bob-the-builder"),
        secret("prairie-words", phrase=f"correct horse {hidden('phrase')}"),
        secret("prairie-blob", blob=bytes(range(200, 256)) + hidden("binary").encode() * 3),
        secret(
            "prairie-tls", "kubernetes.io/tls", **{"tls.crt": "public", "tls.key": PEM.format(body=hidden("tls key"))}
        ),
        secret("prairie-kubeconfig", "cluster.x-k8s.io/secret", value=kubeconfig),
        secret("prairie-x-machine-bootstrap", names.BOOTSTRAP_TYPE, own, value=script),
        secret(
            "prairie-x-machine-plan",
            names.PLAN_TYPE,
            own,
            plan=plan(hidden),
            applied__output=gzip.compress(f'{{"install":"token={hidden("output of a plan")}"}}'.encode()),
            failed__message=f"it said password={hidden('failed message')}",
            plan__state="failed",
            probe__statuses='{"kubelet":{"healthy":false}}',
        ),
        secret("prairie-x-machine-state", names.STATE_TYPE, own, id_rsa=PEM.format(body=hidden("ssh key"))),
    ):
        await engine.create(SECRETS, place, {"apiVersion": "v1", "kind": "Secret", **one})
    noted = secret("prairie-noted", a="b")
    noted["metadata"]["annotations"] = {"remuda.dev/bootstrap-tokens": hidden("annotation of a Secret")}
    await engine.create(SECRETS, place, {"apiVersion": "v1", "kind": "Secret", **noted})
    elsewhere = await engine.namespace()
    cloud = secret("cloud", accessKey=hidden("cloud credential"))
    await engine.create(SECRETS, elsewhere, {"apiVersion": "v1", "kind": "Secret", **cloud})
    minted = tokens.mint("u-ann")
    hidden.values["hash of a token"] = minted.obj["hash"].partition(":")[2]
    hidden.values["user token"] = minted.bearer.partition(":")[2]
    await engine.create(
        USER.target, "", {"apiVersion": USER.api_version, "kind": "User", "metadata": {"name": "u-ann"}}
    )
    await engine.create(TOKEN.target, "", minted.obj)
    await _plant_in_objects(harness, hidden, minted.bearer)


async def _plant_in_objects(harness: ProvisioningHarness, hidden: Planted, bearer: str) -> None:
    engine, place = harness.engine, harness.namespace
    manifest = f"apiVersion: v1\nkind: Secret\nstringData: {{x: {hidden('additional manifest')}}}\n"
    spec = {
        "agentEnvVars": [
            {"name": "SOMETHING", "value": hidden("environment")},
            {"name": "HTTPS_PROXY", "value": hidden("proxy password", "http://bob:{}@proxy.example:3128")},
        ],
        "rkeConfig": {
            "additionalManifest": manifest,
            "machineGlobalConfig": {"kube-apiserver-arg": [hidden("oidc secret", "oidc-client-secret={}")]},
        },
    }
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"x":"{hidden("last applied")}"}}'}
    await engine.patch(CLUSTER.target, place, "prairie", {"metadata": {"annotations": applied}, "spec": spec})
    said = (
        f"the driver said: {hidden.values['cloud credential']} is not allowed; "
        f"ran mkvm --api-key {hidden('option')} --size 3; Authorization: Bearer {hidden('bearer')}; "
        f"https://bob:{hidden('url password')}@cloud.example/; db_password={hidden('assignment')}; {bearer}; "
        f"K10{'a' * 64}::server:{hidden('K10 token')}; eyJhbGciOiJSUzI1NiJ9.{hidden('claims')}.{hidden('signature')}"
    )
    condition = {"type": "Ready", "status": "False", "reason": "Failed", "message": said}
    status = {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    await engine.status(CLUSTER.target, place, "prairie", status)
    about = {"kind": "Cluster", "name": "prairie", "namespace": place, "apiVersion": CLUSTER.api_version}
    event = {"involvedObject": about, "reason": "Trouble", "message": said[:1000], "type": "Warning"}
    metadata = {"name": "prairie.1", "namespace": place}
    times = {"lastTimestamp": "2026-01-01T00:00:00Z", "firstTimestamp": "2026-01-01T00:00:00Z"}
    await engine.create(EVENTS, place, {"apiVersion": "v1", "kind": "Event", "metadata": metadata, **event, **times})
    container = {"name": "c", "image": "i", "env": [{"name": "X", "value": hidden("environment of a Job")}]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job = {"metadata": {"name": "prairie-x-machine-provision", "labels": {names.CLUSTER_NAME: "prairie"}}}
    await engine.create(JOBS, place, {"apiVersion": "batch/v1", "kind": "Job", **job, "spec": {"template": template}})


def texts(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        found = {}
        for entry in archive.getmembers():
            assert entry.isreg()
            assert entry.mode == 0o600
            file = archive.extractfile(entry)
            assert file is not None
            found[entry.name.partition("/")[2]] = file.read().decode()
        return found


def leaks(hidden: Planted, found: dict[str, str]) -> list[tuple[str, str]]:
    told = []
    for what, value in hidden.values.items():
        forms = [value, *(encoded(" " * lead + value)[4 if lead else 0 : -4] for lead in range(3))]
        told += [(what, name) for name, text in found.items() if any(form in text for form in forms)]
    return told


async def diagnose(harness: ProvisioningHarness, *words: str | Path) -> Ended:
    return await remuda(harness.engine, "diagnose", *words)


async def test_bundle_contains_diagnostics_but_no_secrets(harness: ProvisioningHarness, tmp_path: Path) -> None:
    hidden = Planted()
    await plant(harness, hidden)
    log = tmp_path / "remuda.log"
    log.write_text(f"starting\n{PEM.format(body=hidden('key in a log'))}token: {hidden('token in a log')}\ngoes on\n")
    path = tmp_path / "all.tar.gz"
    done = await diagnose(harness, "prairie", "-n", harness.namespace, "-o", path, "--log", log)
    assert done.code == 0, done.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = texts(path)
    assert leaks(hidden, found) == []

    place = harness.namespace
    (cluster,) = yaml.safe_load_all(found[f"objects/{place}/clusters.provisioning.cattle.io.yaml"])
    assert cluster["spec"]["kubernetesVersion"] == "v1.34.1+k3s1"
    assert cluster["spec"]["agentEnvVars"][1]["value"] == "http://***@proxy.example:3128"
    outlines = {one["metadata"]["name"]: one for one in yaml.safe_load(found["secrets.yaml"])}
    assert outlines["prairie-any"]["keys"]["user"] == "15 bytes"
    assert outlines["prairie-noted"]["metadata"]["annotations"] == ["remuda.dev/bootstrap-tokens"]
    made = yaml.safe_load(found[f"plans/{place}/prairie-x-machine-plan.yaml"])
    assert made["plan"]["files"][0]["path"] == "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"
    assert made["plan"]["files"][0]["content"].endswith(" bytes")
    assert made["plan-state"] == "failed"
    assert "RKEControlPlane prairie" in found[f"clusters/{place}/prairie/why.txt"]
    assert "Cluster prairie" in found[f"clusters/{place}/prairie/describe.txt"]
    assert "Trouble  the driver said: *** is not allowed; ran mkvm --api-key *** --size 3" in found["events.txt"]
    assert "apiserver_" in found["server/metrics.txt"]
    assert found["server/healthz.txt"].startswith("ok")
    assert found["management/remuda.log"].startswith("starting\n")
    assert "goes on" in found["management/remuda.log"]
    assert f"objects/{place}/simconfigs.{CONFIG.target.group}.yaml" in found
    assert f"objects/{place}/jobs.batch.yaml" in found
    assert not any("tokens" in name for name in found)
    assert "left out:" in done.out
    assert "values of Secrets" in done.out
    assert "contents.txt" in found
    assert list(tmp_path.glob(".*")) == []

    everything = tmp_path / "everything.tar.gz"
    assert (await diagnose(harness, "-o", everything)).code == 0
    found = texts(everything)
    assert leaks(hidden, found) == []
    assert "u-ann" in found["objects/cluster-wide/tokens.management.cattle.io.yaml"]


async def test_cluster_bundle_contains_nothing_of_other_clusters(harness: ProvisioningHarness, tmp_path: Path) -> None:
    await harness.config("other")
    await harness.cluster(pool("other"), name="prairie-east")
    other = secret("prairie-east-any", password="whatever-it-is")
    await harness.engine.create(SECRETS, harness.namespace, {"apiVersion": "v1", "kind": "Secret", **other})
    done = await diagnose(harness, "prairie", "-n", harness.namespace, "-o", tmp_path / "b.tar.gz")
    assert done.code == 0, done.err
    assert "the log of the management plane: not found" in done.out
    assert not [name for name, text in texts(tmp_path / "b.tar.gz").items() if "prairie-east" in text]


@pytest.mark.parametrize("force", [False, True])
async def test_existing_bundle_file_is_overwritten_only_with_force(
    harness: ProvisioningHarness, tmp_path: Path, force: bool
) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_text("mine")
    path.chmod(0o644)
    words: tuple[Any, ...] = ("prairie", "-n", harness.namespace, "-o", path, *(["--force"] if force else []))
    done = await diagnose(harness, *words)
    assert (done.code == 0) == force
    assert (path.read_bytes() == b"mine") != force
    if force:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    else:
        assert "overwrite it with --force" in done.err
    assert list(tmp_path.glob(".*")) == []


async def test_invalid_arguments_fail_before_collection(harness: ProvisioningHarness, tmp_path: Path) -> None:
    done = await diagnose(harness, "meadow", "-o", tmp_path / "b.tar.gz")
    assert (done.code, "cluster meadow not found" in done.err) == (1, True)
    done = await diagnose(harness, "-o", tmp_path / "nowhere" / "b.tar.gz")
    assert (done.code, " does not exist" in done.err) == (1, True)
    done = await diagnose(harness, "--log", tmp_path / "none.log", "-o", tmp_path / "b.tar.gz")
    assert (done.code, "cannot read " in done.err) == (1, True)
    assert list(tmp_path.iterdir()) == []
    assert await harness.engine.get(NAMESPACES, "", harness.namespace) is not None
