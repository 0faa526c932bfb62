"""The plan Secret of one machine, and the account that can read and write exactly it. Pure.

What stands on the plan Secret of labels and annotations is copied from the RKEBootstrap and the Machine, which a host
cannot write, and never read back: whoever wants to know a machine's roles asks those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from remuda.capi import names as capi_names
from remuda.capi.cluster_index import controlled_by
from remuda.capi.types import Machine
from remuda.kube.objects import Object, ObjectMeta, OwnerReference
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import RKE_BOOTSTRAP, RKEBootstrap

ACCOUNT_NAME = "kubernetes.io/service-account.name"
TOKEN_TYPE = "kubernetes.io/service-account-token"  # noqa: S105 - what it is, not one
TOKEN_KEY = "token"  # noqa: S105
BOOTSTRAP_UID = "remuda.dev/rkebootstrap-uid"  # annotation of the token's Secret, which belongs to the account

VERBS = ("get", "list", "watch", "update", "patch")

_OURS = ("rke.cattle.io/", "cattle.io/")  # prefixes of what a Machine says of its host
# Not copied: `machine-id` changes when a host connects, which is worth no write here; by the other Cluster API finds
# Secrets of its own, and would hear of every result of every plan.
_KEPT_BACK = (names.MACHINE_ID, capi_names.CLUSTER_NAME)

Json = dict[str, Any]


class Owner(NamedTuple):
    """Owner of a plan: an RKEBootstrap and its Machine."""

    bootstrap: RKEBootstrap
    machine: Machine

    @property
    def name(self) -> str:
        """Return the name of the plan Secret, and of its account, role and binding."""
        return names.plan_secret(self.bootstrap.metadata.name)

    @property
    def token_name(self) -> str:
        return token_secret(self.bootstrap.metadata.name)

    @property
    def reference(self) -> OwnerReference:
        return controlled_by(RKE_BOOTSTRAP, self.bootstrap.metadata)


def token_secret(bootstrap: str) -> str:
    """The Secret with the long-lived token of the plan Secret's account."""
    return names.join(names.plan_secret(bootstrap), "token")


def common_labels(owner: Owner) -> dict[str, str]:
    """On everything of one machine."""
    return {
        names.CLUSTER_NAME: capi_names.label_value(owner.machine.spec.cluster_name),
        names.MACHINE_NAME: capi_names.label_value(owner.machine.metadata.name),
    }


def plan_labels(owner: Owner) -> dict[str, str]:
    copied = {**owner.bootstrap.metadata.labels, **_ours(owner.machine.metadata.labels)}
    for key in _KEPT_BACK:
        copied.pop(key, None)
    if owner.bootstrap.metadata.labels.get(names.MACHINE_ID):  # a host that registered itself: it never changes
        copied[names.MACHINE_ID] = owner.bootstrap.metadata.labels[names.MACHINE_ID]
    return {**copied, **common_labels(owner)}


def plan_annotations(owner: Owner) -> dict[str, str]:
    return {**_ours(owner.bootstrap.metadata.annotations), **_ours(owner.machine.metadata.annotations)}


def is_of(metadata: ObjectMeta, uid: str) -> bool:
    """Return whether the RKEBootstrap with that uid created the object.

    Objects of an earlier RKEBootstrap of the same name remain for a while.
    """
    if BOOTSTRAP_UID in metadata.annotations:
        return metadata.annotations[BOOTSTRAP_UID] == uid
    return any(owner.uid == uid for owner in metadata.owner_references)


def is_guarded(label: str) -> bool:
    """Return whether a label must not be on the plan Secret unless it is on an object that labels are copied from."""
    return label.startswith(_OURS)


def _ours(values: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in values.items() if key.startswith(_OURS)}


# what is created


def plan_secret(owner: Owner) -> Json:
    metadata = _metadata(owner, plan_labels(owner))
    if annotations := plan_annotations(owner):
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Secret", "type": names.PLAN_TYPE, "metadata": metadata}


def account(owner: Owner) -> Json:
    labels = {
        **common_labels(owner),
        names.BOOTSTRAP_NAME: capi_names.label_value(owner.bootstrap.metadata.name),
        names.ACCOUNT_ROLE: names.PLAN_ROLE,
        names.PLAN_SECRET_NAME: owner.name,
    }
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(owner, labels),
        "automountServiceAccountToken": False,  # only a host uses this account, no Pod
    }


def role(owner: Owner) -> Json:
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [owner.name], "verbs": list(VERBS)}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": _metadata(owner, common_labels(owner)),
        "rules": [rule],
    }


def role_binding(owner: Owner) -> Json:
    namespace = owner.bootstrap.metadata.namespace
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(owner, common_labels(owner)),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": owner.name},
        "subjects": [{"kind": "ServiceAccount", "name": owner.name, "namespace": namespace}],
    }


def token(owner: Owner, account: Object) -> Json:
    """Return the Secret with the account's token.

    The account owns it, not the RKEBootstrap: the token is worthless on another server, so tools that move clusters
    between servers must not copy it.
    """
    belongs_to = OwnerReference(
        api_version="v1", kind="ServiceAccount", name=account.metadata.name, uid=account.metadata.uid, controller=True
    )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": TOKEN_TYPE,
        "metadata": {
            "name": owner.token_name,
            "labels": common_labels(owner),
            "annotations": {
                ACCOUNT_NAME: owner.name,
                names.BOOTSTRAP_NAME: owner.bootstrap.metadata.name,
                BOOTSTRAP_UID: owner.bootstrap.metadata.uid,
            },
            "ownerReferences": [msgspec.to_builtins(belongs_to)],
        },
    }


def _metadata(owner: Owner, labels: Mapping[str, str]) -> Json:
    return {
        "name": owner.name,
        "labels": dict(labels),
        "ownerReferences": [msgspec.to_builtins(owner.reference)],
    }
