"""`remuda create cluster` on servers that a user owns, and the versions that it accepts."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest
import pytest_asyncio

from remuda.kube.client import Target
from remuda.kube.core import SECRETS
from remuda.providers.machine import definitions, options
from remuda.providers.shared.drivers.existing import Existing
from remuda.provisioning.types import CLUSTER
from tests.controllers.engine import Engine
from tests.controllers.program import Ended, remuda
from tests.controllers.provisioning_harness import ProvisioningHarness

CONFIGS = Target("rke-machine-config.cattle.io/v1", "existingconfigs")
VERSION = "v1.36.4+k3s1"


class Place:
    """A namespace without clusters, and a private key."""

    def __init__(self, engine: Engine, namespace: str, key: Path) -> None:
        self.engine, self.namespace, self.key = engine, namespace, key

    async def create(self, name: str, *words: str | Path) -> Ended:
        return await remuda(self.engine, "create", "cluster", name, "-n", self.namespace, *words)

    async def names(self, target: Target) -> set[str]:
        return {one["metadata"]["name"] for one in await self.engine.list(target, self.namespace)}


@pytest_asyncio.fixture(loop_scope="session")
async def place(engine: Engine, tmp_path: Path) -> AsyncIterator[Place]:
    harness = await ProvisioningHarness.create(engine)
    await engine.install(definitions.of_driver(options.of_driver(Existing)))
    key = tmp_path / "id_ed25519"
    key.touch(mode=0o600)
    key.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    yield Place(engine, harness.namespace, key)


async def test_hosts_become_pools_and_key_becomes_secret_of_cluster(place: Place) -> None:
    hosts = ("--host", "cowhand@192.0.2.10,cowhand@192.0.2.11:2222", "--ssh-key", place.key)
    done = await place.create("ranch", "--driver", "existing", *hosts, "--kubernetes-version", "stable")
    assert done.code == 0, done.err
    assert f"Cluster ranch created: {VERSION}, 1 server, 1 worker, driver existing" in done.out
    text = place.key.read_text()
    assert text not in done.out + done.err
    configs = {one["metadata"]["name"]: one for one in await place.engine.list(CONFIGS, place.namespace)}
    assert {name: (one["addresses"], one["sshUser"]) for name, one in configs.items()} == {
        "ranch-servers": (["192.0.2.10"], "cowhand"),
        "ranch-workers": (["192.0.2.11:2222"], "cowhand"),
    }
    (cluster,) = await place.engine.list(CLUSTER.target, place.namespace)
    assert cluster["spec"]["cloudCredentialSecretName"] == "ranch-ssh-key"
    assert cluster["spec"]["kubernetesVersion"] == VERSION
    secret = json.loads(await place.engine.client.get(SECRETS, place.namespace, "ranch-ssh-key"))
    assert base64.b64decode(secret["data"]["privateKey"]).decode() == text
    assert [one["uid"] for one in secret["metadata"]["ownerReferences"]] == [cluster["metadata"]["uid"]]


async def test_dry_run_on_hosts_prints_no_key_and_creates_nothing(place: Place) -> None:
    before = await place.names(SECRETS)
    done = await place.create("ranch", "--host", "192.0.2.10", "--ssh-key", place.key, "--dry-run")
    assert done.code == 0, done.err
    assert "PRIVATE KEY" not in done.out + done.err
    assert base64.b64encode(place.key.read_bytes()).decode() not in done.out + done.err
    assert "workerRole: true" in done.out
    assert f"kubectl create secret generic ranch-ssh-key -n {place.namespace} --from-file=privateKey=" in done.err
    assert await place.names(SECRETS) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--host", "192.0.2.10"), "--host needs a private key"),
        (("--ssh-key", "x"), "--host and --ssh-key belong together"),
        (("--host", "192.0.2.10", "--ssh-key", "/nowhere/key"), "cannot read --ssh-key /nowhere/key"),
        (("--host", "192.0.2.10", "--driver", "process", "--ssh-key", "x"), "and to the driver existing"),
        (("--driver", "existing", "--kubernetes-version", "v9.9.9+nano1"), "nobody has version v9.9.9+nano1"),
        (("--driver", "process", "--kubernetes-version", "nightly"), "nano has no channel 'nightly'"),
    ],
)
async def test_bad_request_is_refused_before_anything_is_created(
    place: Place, words: tuple[str, ...], said: str
) -> None:
    done = await place.create("ranch", *words)
    assert done.code != 0
    assert said in " ".join(done.err.split())
    assert await place.names(CLUSTER.target) == set()


async def test_administrator_replaces_channels_for_all_users(place: Place, tmp_path: Path) -> None:
    own = tmp_path / "channels.yaml"
    own.write_text("distributions: {nano: {channels: {stable: v9.9.9+nano1}}}\n")
    try:
        updated = await remuda(place.engine, "channels", "update", own)
        assert updated.code == 0, updated.err
        listed = await remuda(place.engine, "channels", "list")
        assert "nano stable v9.9.9+nano1" in " ".join(listed.out.split())
        assert "from ConfigMap kube-public/remuda-channels" in listed.err
        done = await place.create("ranch", "--driver", "process", "--dry-run")
        assert "kubernetesVersion: v9.9.9+nano1" in done.out, done.err
    finally:
        assert (await remuda(place.engine, "channels", "reset")).code == 0
    listed = await remuda(place.engine, "channels", "list")
    assert "from this installation of remuda of" in listed.err
    forced = await place.create(
        *("ranch", "--driver", "process", "--dry-run"), "--kubernetes-version=v9.9.9+nano1", "--allow-unknown-version"
    )
    assert "kubernetesVersion: v9.9.9+nano1" in forced.out
