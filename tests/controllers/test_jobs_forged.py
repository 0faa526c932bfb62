"""A user with `edit` in one namespace tries to have the job runner run code: nothing of it runs, on either engine.

Admission refuses the write already, on Kubernetes by a webhook. Each test then makes the same write as somebody whom
admission lets through, so that the runner's own check is tested as well.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from remuda.jobs import MANAGED_BY
from remuda.jobs.marks import ANNOTATION
from remuda.jobs.runner import JobRunner
from remuda.kube import kubeconfig
from remuda.kube.client import Client
from remuda.kube.core import CONFIG_MAPS, JOBS, PODS, ROLE_BINDINGS, SECRETS, SERVICE_ACCOUNTS
from remuda.kube.errors import StatusError
from remuda.kube.http import HttpClient
from remuda.runtime.manager import Manager
from tests.controllers.engine import Engine, condition, eventually, is_true
from tests.controllers.jobs import Runner, finished, job, pod_of

Json = dict[str, Any]

_GENERATED = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation")


class Tenant:
    """A user with `edit` in one namespace, and the manager's job runner beside it."""

    def __init__(self, engine: Engine, namespace: str, client: Client, folder: Path) -> None:
        self.engine = engine
        self.namespace = namespace
        self.client = client
        self.folder = folder
        self.runner = Runner(engine, folder)
        self.loot = folder / "loot"  # what code of the tenant would write

    def real_program(self, manager: Manager) -> None:
        self.runner.runner = JobRunner(manager, self.runner.settings)

    async def create(self, made: Json) -> None:
        """Try it as the tenant, whom admission refuses; then create it as somebody whom admission lets through."""
        with pytest.raises(StatusError) as caught:
            await self.client.create(JOBS, self.namespace, made)
        self._refused(caught.value)
        await self.engine.create(JOBS, self.namespace, made)

    def _refused(self, error: StatusError) -> None:
        assert (error.code, error.reason) == (403, "Forbidden")
        assert f"only the manager of Remuda may write Jobs with spec.managedBy {MANAGED_BY}" in error.message

    async def genuine(self, name: str = "genuine", **more: Any) -> Json:
        """A Job of the manager."""
        return await self.runner.submit(self.namespace, job(name, "touch", str(self.folder / name), **more))

    async def fails(self, name: str) -> str:
        """The Job ends as not runnable, and nothing was started for it; returns why."""
        failed = await finished(self.engine, self.namespace, name)
        found = condition(failed, "Failed")
        assert (found["status"], found["reason"]) == ("True", "NotRunnable")
        pods = await self.engine.list(PODS, self.namespace, label_selector=f"job-name={name}")
        started = [pod for pod in pods if "running" in str(pod["status"]) or pod["status"].get("phase") == "Succeeded"]
        assert started == []
        assert not self.loot.exists()
        assert not (self.folder / name).exists()
        return str(found["message"])


@pytest_asyncio.fixture(loop_scope="session")
async def tenant(engine: Engine, tmp_path: Path) -> AsyncIterator[Tenant]:
    namespace = await engine.namespace()
    await engine.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "tenant"}})
    binding = {
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
    }
    await engine.create(ROLE_BINDINGS, namespace, binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = await engine.client.create(SERVICE_ACCOUNTS, namespace, request, name="tenant", subresource="token")
    token = msgspec.json.decode(answer)["status"]["token"]
    found = kubeconfig.load(engine.kubeconfig)
    ca_pem = found.ca.read_bytes() if isinstance(found.ca, Path) else found.ca
    place = tmp_path / "tenant.kubeconfig"
    place.write_text(yaml.safe_dump(kubeconfig.build(found.server, ca_pem=ca_pem, token=token)))
    client = HttpClient(kubeconfig.load(place))
    try:
        await eventually(lambda: _may_edit(client, namespace))
        yield Tenant(engine, namespace, client, tmp_path)
    finally:
        await client.close()


async def _may_edit(client: Client, namespace: str) -> bool:
    """An API server learns of a binding a moment later."""
    try:
        await client.list(JOBS, namespace)
    except StatusError:
        return False
    return True


def copied(made: Json, **metadata: Any) -> Json:
    """As `kubectl get -o yaml`, an editor, and `kubectl create` would."""
    found = copy.deepcopy(made)
    found.pop("status", None)
    for name in _GENERATED:
        found["metadata"].pop(name, None)
    found["spec"].pop("selector", None)
    labels = found["spec"]["template"]["metadata"].get("labels", {})
    for labelled in (labels, found["metadata"].get("labels") or {}):
        for name in [name for name in labelled if name.endswith(("controller-uid", "job-name"))]:
            del labelled[name]
    found["metadata"] |= metadata
    return found


async def test_job_with_code_in_a_config_map_is_refused(engine: Engine, tenant: Tenant) -> None:
    code = f"import pathlib; pathlib.Path({str(tenant.loot)!r}).write_text('owned')"
    evil = {"metadata": {"name": "evil"}, "data": {"sitecustomize.py": code}}
    await tenant.client.create(CONFIG_MAPS, tenant.namespace, evil)
    container = {
        "env": [{"name": "PYTHONPATH", "value": "../root/evil"}],
        "volumeMounts": [{"name": "evil", "mountPath": "/evil"}],
    }
    pod = {"volumes": [{"name": "evil", "configMap": {"name": "evil"}}]}
    async with engine.running(tenant.namespace, tenant.real_program):
        await tenant.create(job("exploit", command=["remuda"], container=container, pod=pod))
        assert "the command must be remuda machine-job, not remuda" in await tenant.fails("exploit")
        await tenant.create(job("obedient", pod=pod, container={"volumeMounts": container["volumeMounts"]}))
        assert "it has no annotation remuda.dev/job-mark" in await tenant.fails("obedient")


async def test_job_with_changed_secret_is_refused(engine: Engine, tenant: Tenant) -> None:
    await tenant.genuine()
    words = {"stringData": {"words.json": f'["touch", "{tenant.loot}"]'}}
    await tenant.client.patch(SECRETS, tenant.namespace, "genuine-words", words)
    async with engine.running(tenant.namespace, tenant.runner.setup):
        assert await tenant.fails("genuine") == (
            "secret 'genuine-words' has changed since the manager made this Job: the Job is not run"
        )


async def test_second_attempt_with_a_changed_secret_is_refused(
    engine: Engine, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.jobs.decisions._FIRST_WAIT_SECONDS", 1.0)
    gate = tenant.folder / "gate"
    words = ["wait-for", str(gate), "exit", "1"]
    await tenant.runner.submit(tenant.namespace, job("twice", *words, backoffLimit=3))
    async with engine.running(tenant.namespace, tenant.runner.setup):
        await pod_of(engine, tenant.namespace, "twice", lambda pod: pod["status"].get("phase") == "Running")
        changed = {"stringData": {"words.json": f'["touch", "{tenant.loot}"]'}}
        await tenant.client.patch(SECRETS, tenant.namespace, "twice-words", changed)
        gate.touch()
        failed = await finished(engine, tenant.namespace, "twice")
    assert condition(failed, "Failed")["reason"] == "NotRunnable"
    assert "has changed since the manager made this Job" in condition(failed, "Failed")["message"]
    assert not tenant.loot.exists()


async def test_job_with_a_forged_label_and_owner_is_refused(engine: Engine, tenant: Tenant) -> None:
    labels = {"rke.cattle.io/infra-machine-kind": "ProcessMachine", "rke.cattle.io/infra-remove": "false"}
    owner = {
        "apiVersion": "v1", "kind": "ServiceAccount", "name": "tenant", "controller": True,
    }  # fmt: skip
    account = await engine.get(SERVICE_ACCOUNTS, tenant.namespace, "tenant")
    assert account is not None
    owner["uid"] = account["metadata"]["uid"]
    made = await tenant.genuine(suspend=True)
    await engine.delete(JOBS, tenant.namespace, "genuine")
    await engine.gone(JOBS, tenant.namespace, "genuine")
    async with engine.running(tenant.namespace, tenant.runner.setup):
        forged = copied(made, labels=labels, ownerReferences=[owner])
        forged["spec"]["suspend"] = False
        await tenant.create(forged)
        assert "its mark is for another namespace, name, owner or spec" in await tenant.fails("genuine")


async def test_job_with_patched_spec_is_refused(engine: Engine, tenant: Tenant) -> None:
    await tenant.genuine(suspend=True, activeDeadlineSeconds=600)
    args = {"name": "work", "image": "remuda", "command": ["remuda", "machine-job"], "args": ["--help"]}
    with pytest.raises(StatusError) as refused:
        await tenant.client.patch(
            JOBS, tenant.namespace, "genuine", {"spec": {"template": {"spec": {"containers": [args]}}}}
        )
    assert refused.value.code == (403 if engine.name == "embedded" else 422)
    await engine.patch(JOBS, tenant.namespace, "genuine", {"spec": {"activeDeadlineSeconds": 6000}})
    async with engine.running(tenant.namespace, tenant.runner.setup):
        await tenant.client.patch(JOBS, tenant.namespace, "genuine", {"spec": {"suspend": False}})
        assert "its mark is for another namespace, name, owner or spec" in await tenant.fails("genuine")


async def test_job_with_init_containers_is_refused(engine: Engine, tenant: Tenant) -> None:
    made = await tenant.genuine(suspend=True)
    await engine.delete(JOBS, tenant.namespace, "genuine")
    await engine.gone(JOBS, tenant.namespace, "genuine")
    forged = copied(made)
    forged["spec"]["suspend"] = False
    shell = {"name": "first", "image": "busybox", "command": ["touch", str(tenant.loot)]}
    forged["spec"]["template"]["spec"]["initContainers"] = [shell]
    async with engine.running(tenant.namespace, tenant.runner.setup):
        await tenant.create(forged)
        assert await tenant.fails("genuine") == "the Pod must have one container and no init containers"


async def test_copy_of_a_real_job_is_refused(engine: Engine, tenant: Tenant) -> None:
    async with engine.running(tenant.namespace, tenant.runner.setup):
        made = await tenant.genuine()
        assert is_true(await finished(engine, tenant.namespace, "genuine"), "Complete")
        assert ANNOTATION in made["metadata"]["annotations"]
        assert (tenant.folder / "genuine").exists()
        (tenant.folder / "genuine").unlink()
        await tenant.create(copied(made, name="copy"))
        assert "its mark is for another namespace, name, owner or spec" in await tenant.fails("copy")
    assert not (tenant.folder / "genuine").exists()
