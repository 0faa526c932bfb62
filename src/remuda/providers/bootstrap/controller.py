"""Controller of RKEBootstraps: gives the server of a Machine what it needs to become a managed host.

    wait for Machine, Cluster and its infrastructure → the plan Secret and the account that opens it → a token, and the
    script that carries it (the Machine Bootstrap Secret) → keep the token fresh until the host is there → watch over
    the plan Secret

All objects created here belong to the RKEBootstrap and are deleted with it. The account's token is created last, so if
it exists, all other objects do. A bootstrap token is not renewed once its host has connected.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterable

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.pause import paused
from remuda.capi.types import CLUSTER, MACHINE, Cluster, Machine
from remuda.kube import conditions
from remuda.kube.client import Target
from remuda.kube.conditions import condition
from remuda.kube.core import ROLE_BINDINGS, ROLES, SECRETS, SERVICE_ACCOUNTS, Secret
from remuda.kube.errors import AlreadyExists, Conflict, StatusError
from remuda.kube.objects import Condition, Key, Kind, Object
from remuda.providers.bootstrap import data, guard, script, tokens
from remuda.providers.shared import names, plan_access, secrets
from remuda.providers.shared.manager_address import Site
from remuda.providers.shared.plan_access import Json, Owner
from remuda.providers.shared.types.bootstrap import (
    AGENT_CONNECTED,
    CONNECTED,
    NODE_TAMPERED,
    READY,
    RKE_BOOTSTRAP,
    RKEBootstrap,
)
from remuda.providers.shared.types.controlplane import RKE_CONTROL_PLANE, RKEControlPlane
from remuda.runtime.draft import Draft, save
from remuda.runtime.manager import Manager
from remuda.runtime.outcome import DONE, Blocked, Outcome, Requeue, Retryable, Terminal
from remuda.runtime.steps import Step, step

NAME = "rkebootstrap"
PUBLISH = step("rkebootstrap.publish", "writes the status of a machine's bootstrap")
CREATE_PLAN = step("rkebootstrap.create-plan-secret", "creates the plan Secret of a machine")
LABEL_PLAN = step("rkebootstrap.label-plan-secret", "restores the labels of a plan Secret to those of its Machine")
CREATE_ACCOUNT = step("rkebootstrap.create-account", "creates the account of a plan Secret")
CREATE_ROLE = step("rkebootstrap.create-role", "creates the role that grants access to one plan Secret")
BIND_ROLE = step("rkebootstrap.bind-role", "binds the role of a plan Secret to its account")
CREATE_TOKEN = step("rkebootstrap.create-account-token", "requests the token of a plan Secret's account")
CREATE_DATA = step("rkebootstrap.create-data", "creates the Machine Bootstrap Secret, with a new bootstrap token")
RENEW_DATA = step("rkebootstrap.renew-data", "renews the bootstrap token in a Machine Bootstrap Secret")

SITE = "remuda.dev/site"  # annotation of a Machine Bootstrap Secret: which manager its script is for

_CONCURRENCY = 20
_CLUSTER_INDEX = "cluster"
_ACCOUNT: Kind[Object] = Kind("v1", "ServiceAccount", "serviceaccounts", Object)


class RKEBootstrapController:
    def __init__(self, manager: Manager, site: Site, token_ttl_seconds: float) -> None:
        self._client = manager.client
        self._events = manager.events
        self._site = site
        self._ttl = token_ttl_seconds
        self._objects = manager.caches.of(RKE_BOOTSTRAP)
        self._machines = manager.caches.of(MACHINE)
        self._clusters = manager.caches.of(CLUSTER)
        self._control_planes = manager.caches.of(RKE_CONTROL_PLANE)
        self._secrets = secrets.informer(manager.caches)
        self._objects.index(_CLUSTER_INDEX, _cluster_of)
        controller = manager.controller(NAME, RKE_BOOTSTRAP, self.reconcile, concurrency=_CONCURRENCY)
        controller.watch(self._machines, _bootstrap_of_machine, "machine", facts=_machine_facts)
        controller.watch(self._clusters, self._of_cluster, "cluster", facts=_cluster_facts)
        controller.watch(self._control_planes, self._of_control_plane, "control plane", facts=script.environment_of)
        controller.watch(self._secrets, _bootstrap_of_secret, "secret", facts=_secret_facts)

    def _of_cluster(self, cluster: Cluster) -> list[Key]:
        return self._objects.keys(_CLUSTER_INDEX, str(cluster.key))

    def _of_control_plane(self, plane: RKEControlPlane) -> list[Key]:
        return self._objects.keys(_CLUSTER_INDEX, str(Key(plane.metadata.namespace, plane.spec.cluster_name)))

    async def reconcile(self, key: Key) -> Outcome:
        value = self._objects.raw(*key)
        if value is None:
            return DONE
        bootstrap = RKE_BOOTSTRAP.decode(value)
        if bootstrap.metadata.deleting:
            return DONE  # what belongs to it is collected
        machine = self._machine_of(bootstrap)
        cluster = None if machine is None else self._clusters.get(key.namespace, machine.spec.cluster_name)
        draft = Draft(RKE_BOOTSTRAP.target, value)
        pause = paused(cluster, bootstrap.metadata)
        news = [pause]
        try:
            if pause.status == conditions.TRUE:
                return Blocked("Paused", f"RKEBootstrap {key}", pause.message)
            if waits := _not_yet(bootstrap, machine, cluster):
                if not bootstrap.status.initialization.data_secret_created:
                    news.append(condition(READY, False, waits.reason, waits.message))
                return waits
            assert machine is not None
            return await self._provide(Owner(bootstrap, machine), draft, news)
        except (Retryable, Terminal) as error:
            reason = names.STALLED if isinstance(error, Terminal) else "Failed"
            news.append(condition(READY, False, reason, str(error)))
            raise
        except Conflict:
            raise  # another writer was faster, which is harmless: no condition reports it
        except StatusError as error:
            news.append(condition(READY, False, "Refused", error.message))
            raise
        finally:
            _put(draft, bootstrap, news)
            await save(self._client, draft, PUBLISH)

    def _machine_of(self, bootstrap: RKEBootstrap) -> Machine | None:
        owner = bootstrap.metadata.owner(MACHINE.name, MACHINE.group)
        found = None if owner is None else self._machines.get(bootstrap.metadata.namespace, owner.name)
        return found if found is not None and owner is not None and found.metadata.uid == owner.uid else None

    async def _provide(self, owner: Owner, draft: Draft, news: list[Condition]) -> Outcome:
        await self._open(owner)
        outcome = await self._keep_data(owner)
        name = names.bootstrap_secret(owner.bootstrap.metadata.name)
        draft.status["dataSecretName"] = name
        draft.status.setdefault("initialization", {})["dataSecretCreated"] = True
        news.append(condition(READY, True, "DataSecretCreated"))
        if conditions.find(owner.bootstrap.status.conditions, AGENT_CONNECTED) is None:
            news.append(_first_word(owner))
        news.extend(self._tampering(owner))
        return outcome

    # the plan Secret and its account

    async def _open(self, owner: Owner) -> None:
        plan = self._own(owner, owner.name)
        if plan is None:
            await self._create(owner, SECRETS, plan_access.plan_secret(owner), CREATE_PLAN)
        else:
            await self._label(owner, plan)
        # The token is created last: if it exists, account, role and binding exist too, and need no request.
        if self._own(owner, owner.token_name) is None:
            account = _ACCOUNT.decode(
                await self._create(owner, SERVICE_ACCOUNTS, plan_access.account(owner), CREATE_ACCOUNT)
            )
            await self._create(owner, ROLES, plan_access.role(owner), CREATE_ROLE)
            await self._create(owner, ROLE_BINDINGS, plan_access.role_binding(owner), BIND_ROLE)
            await self._create(owner, SECRETS, plan_access.token(owner, account), CREATE_TOKEN)

    async def _label(self, owner: Owner, plan: Secret) -> None:
        """Restore copied labels and annotations that differ, regardless of who changed them. Labels and annotations
        that others have added stay, except labels that could be mistaken for ours."""
        labels, annotations = plan_access.plan_labels(owner), plan_access.plan_annotations(owner)
        present = plan.metadata.labels
        stray = [key for key in present if plan_access.is_guarded(key) and key not in labels]
        wrong = [key for key, value in labels.items() if present.get(key) != value]
        outdated = [key for key, value in annotations.items() if plan.metadata.annotations.get(key) != value]
        value = self._secrets.raw(*plan.key)
        if not (stray or wrong or outdated) or value is None:
            return
        draft = Draft(SECRETS, value)
        for key in stray:
            draft.set_label(key, None)
        for key in wrong:
            draft.set_label(key, labels[key])
        for key in outdated:
            draft.set_annotation(key, annotations[key])
        await save(self._client, draft, LABEL_PLAN)
        said = ", ".join(sorted({*stray, *wrong, *outdated}))
        self._events.normal(owner.bootstrap, "PlanSecretLabelled", f"plan Secret {plan.key}: {said} as on its Machine")

    def _tampering(self, owner: Owner) -> list[Condition]:
        """Return the condition that reports the changes that admission has denied to the host's account."""
        plan = self._own(owner, owner.name)
        refused = guard.refused(plan.metadata.annotations) if plan is not None else None
        present = conditions.find(owner.bootstrap.status.conditions, NODE_TAMPERED)
        if refused is None:
            return [] if present is None else [condition(NODE_TAMPERED, False, "Cleared")]
        message = f"{refused}; nothing was changed. Anyone with its kubeconfig may have tried this, not only its agent"
        if present is None or present.message != message:
            self._events.warning(owner.bootstrap, NODE_TAMPERED, message)
        return [condition(NODE_TAMPERED, True, "ChangesRefused", message)]

    # the Machine Bootstrap Secret

    async def _keep_data(self, owner: Owner) -> Outcome:
        name = names.bootstrap_secret(owner.bootstrap.metadata.name)
        present = self._own(owner, name)
        form = data.form(owner.machine.spec.infrastructure_ref)
        if form == "none" or _is_at_work(owner):
            if present is None and not owner.bootstrap.status.initialization.data_secret_created:
                await self._create(owner, SECRETS, _data_secret(owner, data.nothing(), {}), CREATE_DATA)
            return DONE
        ledger = tokens.read(present.metadata.annotations.get(tokens.LEDGER, "")) if present is not None else None
        # The script contains the manager's address and CA: after either has changed, a server cannot register with it.
        elsewhere = present is not None and present.metadata.annotations.get(SITE) != self._site.digest
        fresh = tokens.seconds_fresh(ledger, self._ttl) if ledger is not None and not elsewhere else 0.0
        if not fresh:
            await self._write_data(owner, form, present, ledger or tokens.TokenLedger())
            fresh = self._ttl / 2
        return Requeue(fresh, "waiting for the host to connect; its bootstrap token is renewed until then")

    async def _write_data(
        self, owner: Owner, form: data.Form, present: Secret | None, ledger: tokens.TokenLedger
    ) -> None:
        token = tokens.make("machine", owner.bootstrap.key)
        userdata = owner.bootstrap.spec.userdata
        try:
            made = data.render(
                form,
                script.for_machine(self._site, token.text, self._environment(owner)),
                userdata.inline_userdata if userdata is not None else "",
            )
        except ValueError as error:
            raise Terminal(str(error)) from None
        annotations = {
            tokens.LEDGER: tokens.write(tokens.add(ledger, token, self._ttl)),
            SITE: self._site.digest,
        }
        secret = _data_secret(owner, made, annotations)
        if present is None:
            await self._create(owner, SECRETS, secret, CREATE_DATA)
            return
        # A host may claim the token at this moment. Without the version, this patch would erase the record of its use.
        patch = {
            "metadata": {"annotations": annotations, "resourceVersion": present.metadata.resource_version},
            "data": secret["data"],
        }
        async with RENEW_DATA:
            await self._client.patch(SECRETS, *present.key, patch)

    def _environment(self, owner: Owner) -> script.Environment:
        cluster = self._clusters.get(owner.machine.metadata.namespace, owner.machine.spec.cluster_name)
        key = None if cluster is None else script.control_plane_of(cluster)
        if key is None:
            return {}
        control_plane = self._control_planes.get(*key)
        if control_plane is None:
            raise Retryable(f"waiting for RKEControlPlane {key}, which names the agents' state directory")
        return script.environment_of(control_plane)

    def _own(self, owner: Owner, name: str) -> Secret | None:
        found = self._secrets.get(owner.bootstrap.metadata.namespace, name)
        return found if found is not None and plan_access.is_of(found.metadata, owner.bootstrap.metadata.uid) else None

    async def _create(self, owner: Owner, target: Target, obj: Json, step: Step) -> bytes:
        """Return the object, created now or before. Raises if another owner has an object of the same name."""
        namespace, name = owner.bootstrap.metadata.namespace, obj["metadata"]["name"]
        with contextlib.suppress(AlreadyExists):
            async with step:
                return await self._client.create(target, namespace, obj)
        value = await self._client.get(target, namespace, name)
        present = _ACCOUNT.decode(value).metadata
        if plan_access.is_of(present, owner.bootstrap.metadata.uid):
            return value
        what = f"{obj['kind']} {namespace}/{name}"
        if present.owner(RKE_BOOTSTRAP.name, RKE_BOOTSTRAP.group) or plan_access.BOOTSTRAP_UID in present.annotations:
            raise Retryable(f"{what} of an earlier RKEBootstrap of this name has not been garbage-collected yet")
        raise Retryable(f"{what} exists and belongs to another owner: delete it, or give the Machine another name")


def _data_secret(owner: Owner, made: data.Data, annotations: dict[str, str]) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": names.BOOTSTRAP_TYPE,
        "metadata": {
            "name": names.bootstrap_secret(owner.bootstrap.metadata.name),
            "labels": plan_access.common_labels(owner),
            "annotations": annotations,
            "ownerReferences": [msgspec.to_builtins(owner.reference)],
        },
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in made._asdict().items()},
    }


def _first_word(owner: Owner) -> Condition:
    """Return the agent's first condition. A moved RKEBootstrap has no status; its Machine still names its host."""
    if names.MACHINE_ID in owner.machine.metadata.labels and data.form(owner.machine.spec.infrastructure_ref) != "none":
        return CONNECTED
    return condition(AGENT_CONNECTED, False, "WaitingForHost", "no agent of the host has connected yet")


def _is_at_work(owner: Owner) -> bool:
    """Return whether the bootstrap data is obsolete: the host is connected and its infrastructure provisioned."""
    connected = conditions.is_true(owner.bootstrap.status.conditions, AGENT_CONNECTED)
    return connected and owner.machine.status.initialization.infrastructure_provisioned


def _not_yet(bootstrap: RKEBootstrap, machine: Machine | None, cluster: Cluster | None) -> Blocked | None:
    if machine is None:
        why = "no Machine owns it yet: create a Machine that names it in spec.bootstrap.configRef"
        return Blocked("WaitingForMachine", f"RKEBootstrap {bootstrap.key}", why)
    if cluster is None:
        name = f"Cluster {machine.metadata.namespace}/{machine.spec.cluster_name}"
        return Blocked("WaitingForCluster", name, f"{name} does not exist")
    if machine.metadata.deleting:
        return Blocked("Deleting", f"Machine {machine.key}", f"Machine {machine.key} is being deleted")
    if not cluster.status.initialization.infrastructure_provisioned:
        why = f"the infrastructure of Cluster {cluster.key} is not provisioned"
        return Blocked("WaitingForInfrastructure", f"Cluster {cluster.key}", why)
    return None


def _put(draft: Draft, bootstrap: RKEBootstrap, news: list[Condition]) -> None:
    conditions.put(draft.status, news, generation=bootstrap.metadata.generation)


# -- watches


def _cluster_of(bootstrap: RKEBootstrap) -> Iterable[str]:
    name = bootstrap.metadata.labels.get(capi_names.CLUSTER_NAME, bootstrap.spec.cluster_name)
    return (f"{bootstrap.metadata.namespace}/{name}",)


def _bootstrap_of_machine(machine: Machine) -> list[Key]:
    reference = machine.spec.bootstrap.config_ref
    if reference is None or (reference.api_group, reference.kind) != (RKE_BOOTSTRAP.group, RKE_BOOTSTRAP.name):
        return []
    return [Key(machine.metadata.namespace, reference.name)]


def _bootstrap_of_secret(secret: Secret) -> list[Key]:
    owner = secret.metadata.owner(RKE_BOOTSTRAP.name, RKE_BOOTSTRAP.group)
    name = owner.name if owner is not None else secret.metadata.annotations.get(names.BOOTSTRAP_NAME, "")
    return [Key(secret.metadata.namespace, name)] if name else []


def _machine_facts(machine: Machine) -> object:
    metadata = machine.metadata
    provisioned = machine.status.initialization.infrastructure_provisioned
    return metadata.labels, metadata.annotations, metadata.deleting, metadata.uid, machine.spec, provisioned


def _cluster_facts(cluster: Cluster) -> object:
    return cluster.spec.paused, cluster.status.initialization.infrastructure_provisioned, cluster.metadata.uid


def _secret_facts(secret: Secret) -> object:
    """Return the metadata alone: this controller does not use the results of plans."""
    return secret.metadata.labels, secret.metadata.annotations, secret.type
