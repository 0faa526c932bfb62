"""The objects one Job needs: its order, credentials, rights, and the Job itself. Pure.

All of them belong to the machine by an owner reference, or to the RKECluster, so nothing outlives it whatever is
interrupted; the Secrets carry the label of the providers' cache. A Job may read and write the state Secret, and nothing
else.

While the namespace is being deleted, nothing can be created in it. The objects of a Job that removes a server are then
in the manager's own namespace (`JobOwner.elsewhere`), with a label in place of the owner reference.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from remuda.capi import names as capi_names
from remuda.jobs import COMMAND, FOLLOWS, MANAGED_BY, TERMINATION_LOG
from remuda.jobs.marks import input_name
from remuda.kube.objects import Key, Kind, ObjectMeta, OwnerReference
from remuda.providers.shared import names
from remuda.providers.shared.drivers.spi import ClusterOrder, Order
from remuda.providers.shared.jobs import protection
from remuda.providers.shared.jobs.settings import MachineSettings

Json = dict[str, Any]

# Labels of a Job and its Pods.
MACHINE_GROUP = "rke.cattle.io/infra-machine-group"
MACHINE_VERSION = "rke.cattle.io/infra-machine-version"
MACHINE_KIND = "rke.cattle.io/infra-machine-kind"
MACHINE_NAME = "rke.cattle.io/infra-machine-name"
REMOVES = "rke.cattle.io/infra-remove"  # "true": the Job removes the server
POOL = "remuda.dev/machine-pool"

REMOVAL_OF = "remuda.dev/removal-of"  # of what is elsewhere. Label: the machine's uid. Annotation: its namespace/name

DIGEST = "remuda.dev/order-digest"  # annotation of a Job whose order may change while it runs

# Keys of the Secret with the order.
ORDER, CLUSTER_ORDER, VALUE, FORMAT = "order.json", "cluster.json", "value", "format"

_ORDER_PATH = "/run/secrets/machine"
_CREDENTIALS_PATH = "/run/secrets/credentials"
_RBAC = "rbac.authorization.k8s.io"
_USER = 1000  # in a container


class JobOwner(msgspec.Struct, frozen=True):
    """The machine or the RKECluster that all of it is for."""

    kind: Kind[Any]
    metadata: ObjectMeta
    cluster: str
    noun: str = "machine"  # in the names of what is made: a machine may be called like its cluster
    elsewhere: str = ""  # the manager's own namespace, where the machine's own is being deleted

    @property
    def namespace(self) -> str:
        return self.elsewhere or self.metadata.namespace

    @property
    def _stem(self) -> tuple[str, ...]:
        """Return the parts of all names. In the manager's namespace they include the uid, because machines of several
        namespaces may have the same name."""
        name = self.metadata.name
        return (name, self.metadata.uid[:13], self.noun) if self.elsewhere else (name, self.noun)

    @property
    def state(self) -> str:
        return names.join(*self._stem, "state")

    @property
    def provision(self) -> str:
        """The Job, its ServiceAccount, Role, RoleBinding, and the Secret with its order."""
        return names.join(*self._stem, "provision")

    @property
    def job_key(self) -> Key:
        return Key(self.namespace, self.provision)

    @property
    def credential(self) -> str:
        return names.join(*self._stem, "driver", "secret")

    def owns(self, metadata: ObjectMeta) -> bool:
        """Return True if an object was made here, and not for another machine of the same name."""
        if self.elsewhere:
            return metadata.labels.get(REMOVAL_OF) == self.metadata.uid
        owner = metadata.controller
        return owner is not None and owner.uid == self.metadata.uid

    def named(self, name: str, kind: str, api_version: str) -> Json:
        if self.elsewhere:
            metadata = {
                "name": name,
                "namespace": self.elsewhere,
                "labels": {REMOVAL_OF: self.metadata.uid},
                "annotations": {REMOVAL_OF: str(self.metadata.key)},
            }
            return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        owner = OwnerReference(
            api_version=self.kind.api_version,
            kind=self.kind.name,
            name=self.metadata.name,
            uid=self.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )
        metadata = {
            "name": name,
            "namespace": self.metadata.namespace,
            "labels": {names.CLUSTER_NAME: capi_names.label_value(self.cluster)},
            "ownerReferences": [msgspec.to_builtins(owner)],
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def subject(job: ObjectMeta, kind: Kind[Any]) -> Key | None:
    """Return which object of a kind a Job is for, wherever the Job is."""
    owner = job.owner(kind.name, kind.group)
    if owner is not None:
        return Key(job.namespace, owner.name)
    namespace, slash, name = job.annotations.get(REMOVAL_OF, "").partition("/")
    is_of_kind = (job.labels.get(MACHINE_KIND), job.labels.get(MACHINE_GROUP)) == (kind.name, kind.group)
    return Key(namespace, name) if slash and is_of_kind else None


def state_secret(place: JobOwner, known: Mapping[str, bytes] = {}) -> Json:
    """Return an empty Secret, which Jobs fill; elsewhere a copy of what is known."""
    if place.elsewhere:
        return {**_secret(place, place.state, known), "type": names.STATE_TYPE}
    return {**protection.protected(place.named(place.state, "Secret", "v1")), "type": names.STATE_TYPE}


def order_secret(place: JobOwner, order: Order | ClusterOrder, value: bytes, format: bytes) -> Json:
    name = ORDER if isinstance(order, Order) else CLUSTER_ORDER
    data = {name: msgspec.json.encode(order)} | ({VALUE: value, FORMAT: format} if value else {})
    return _secret(place, place.provision, data)


def credential_secret(place: JobOwner, fields: Mapping[str, bytes]) -> Json:
    return _secret(place, place.credential, fields)


def _secret(place: JobOwner, name: str, data: Mapping[str, bytes]) -> Json:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return {**place.named(name, "Secret", "v1"), "type": "Opaque", "data": encoded}


def contents(secrets: Sequence[Json]) -> dict[str, dict[str, bytes]]:
    """Return the data of Secrets by the names that a Job's mark uses."""
    return {
        input_name("secrets", secret["metadata"]["name"]): {
            key: base64.b64decode(value) for key, value in secret["data"].items()
        }
        for secret in secrets
    }


def account(place: JobOwner) -> Json:
    return place.named(place.provision, "ServiceAccount", "v1")


def role(place: JobOwner) -> Json:
    made = place.named(place.provision, "Role", f"{_RBAC}/v1")
    # The driver works with options that a user has chosen, so the Job may access its own state Secret and nothing else.
    rule = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [place.state],
        "verbs": ["get", "update", "patch"],
    }
    return {**made, "rules": [rule]}


def role_binding(place: JobOwner) -> Json:
    name = place.provision
    made = place.named(name, "RoleBinding", f"{_RBAC}/v1")
    account = {"kind": "ServiceAccount", "name": name, "namespace": place.namespace}
    return {**made, "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name}, "subjects": [account]}


def job(
    place: JobOwner,
    order: Order | ClusterOrder,
    settings: MachineSettings,
    *,
    credentials: bool,
    pool: str = "",
    owner: str = "",
    digest: str = "",
) -> Json:
    """`owner`: the name of the Machine, if there is one."""
    labels = _job_labels(place, order, pool, owner)
    made = place.named(place.provision, "Job", "batch/v1")
    made["metadata"]["labels"] |= labels
    annotations = made["metadata"].setdefault("annotations", {})
    if digest:
        annotations[DIGEST] = digest
    if place.elsewhere:
        before = msgspec.structs.replace(place, elsewhere="")
        annotations[FOLLOWS] = str(before.job_key)
    spec: Json = {
        "backoffLimit": 0,  # the controller retries, within the failure budget
        "activeDeadlineSeconds": settings.job_seconds,
        "template": {"metadata": {"labels": labels}, "spec": _pod(place, settings, credentials)},
    }
    # Kubernetes' own Job controller leaves a Job with this field to the job runner.
    if settings.run_jobs:
        spec["managedBy"] = MANAGED_BY
    return {**made, "spec": spec}


def _job_labels(place: JobOwner, order: Order | ClusterOrder, pool: str, owner: str) -> dict[str, str]:
    found = {
        MACHINE_GROUP: place.kind.group,
        MACHINE_VERSION: place.kind.target.version,
        MACHINE_KIND: place.kind.name,
        MACHINE_NAME: capi_names.label_value(place.metadata.name),
        REMOVES: "true" if order.action == "remove" else "false",
    }
    found |= {POOL: capi_names.label_value(pool)} if pool else {}
    return found | ({names.CAPI_MACHINE_NAME: capi_names.label_value(owner)} if owner else {})


def _pod(place: JobOwner, settings: MachineSettings, credentials: bool) -> Json:
    mounted = {"order": (place.provision, _ORDER_PATH)}
    if credentials:
        mounted["credentials"] = (place.credential, _CREDENTIALS_PATH)
    limits = {"memory": settings.memory} | ({"cpu": settings.cpu} if settings.cpu else {})
    container: Json = {
        "name": "machine",
        "image": settings.image or "remuda",
        "command": [*COMMAND],
        "resources": {"limits": limits},
        "volumeMounts": [{"name": key, "mountPath": path, "readOnly": True} for key, (_, path) in mounted.items()],
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if settings.image_pull_policy:
        container["imagePullPolicy"] = settings.image_pull_policy
    made: Json = {
        "restartPolicy": "Never",
        "serviceAccountName": place.provision,
        "containers": [container],
        "volumes": [
            {"name": key, "secret": {"secretName": secret, "defaultMode": 0o440}}
            for key, (secret, _) in mounted.items()
        ],
    }
    if not settings.run_jobs:
        who = {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
        made["securityContext"] = {**who, "seccompProfile": {"type": "RuntimeDefault"}}
    return made
