"""Users, tokens and grants: kinds of `management.cattle.io/v3`, with the fields of Rancher's.

A User's name identifies it in RBAC rules of the management plane and of every cluster, and in audit lines. Of a token
only the SHA-256 is stored. A grant is in the namespace of its cluster, which is named after the cluster's id.

Each token and grant is deleted with its User, and with no other one. The owner is recorded by its uid: a later User of
the same name inherits nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from remuda.capi.types.shared import Conditions
from remuda.kube.objects import Field, Kind, Object, ObjectMeta, OwnerReference, Part
from remuda.kube.schema import Rule
from remuda.providers.shared import names

TOKEN_KIND = "authn.management.cattle.io/kind"  # noqa: S105 - label of a Token: what it is for
SYSTEM = "provisioning"  # the value of that label: of a cluster's own user, in its kubeconfig

DIGEST_PREFIX = "sha256:"
DIGEST = rf"^{DIGEST_PREFIX}[0-9a-f]{{64}}$"

# ClusterRole in the cluster for each of our roles. Any other ClusterRole is written as clusterrole:<name>.
ROLES = {"cluster-owner": "cluster-admin", "cluster-member": "edit", "cluster-viewer": "view"}
ANY_ROLE = "clusterrole:"

MOST_CLUSTERS = 100  # that one token is limited to

READY = "Ready"  # of a grant: written on the management plane and in the cluster

_FIXED = Rule(rule="self == oldSelf", message="is immutable: create another object and delete this one")

# Also in the schema, so that a secret is stored by no engine; one that asks it before admission shows it to its author.
NO_HASH = (
    "must be sha256: followed by the SHA-256 of the secret in hex, never the secret itself; use `remuda token create`"
)
_HASHED = Rule(rule=f"self.matches('{DIGEST}')", message=NO_HASH)


class Quota(Part):
    """Limits of what one user may own."""

    clusters: Annotated[int | None, Field("Declared clusters; unset: the default.", minimum=0)] = None
    machines: Annotated[
        int | None, Field("Machines that the pools of these clusters ask for; unset: the default.", minimum=0)
    ] = None
    tokens: Annotated[int | None, Field("Valid tokens; unset: the default.", minimum=0)] = None


class User(Object):
    """User of clusters. Its name identifies it on the management plane, in every cluster and in audit lines."""

    username: Annotated[str, Field("Login name; the name of the object if empty.", max_length=253)] = ""
    display_name: Annotated[str, Field("Full name.", max_length=253)] = ""
    description: Annotated[str, Field("What it is for.", max_length=1024)] = ""
    enabled: Annotated[bool, Field("Whether its tokens are valid.", default=True)] = True
    quota: Annotated[Quota, Field("Limits of what it may own.")] = Quota()


class Token(Object):
    """Credential of a user: `<name of the Token>:<secret>`. The secret is not stored."""

    user_id: Annotated[
        str,
        Field("The User.", required=True, min_length=1, max_length=253, rules=(_FIXED,)),
    ] = msgspec.field(name="userId", default="")
    hash: Annotated[str, Field("SHA-256 of the secret.", required=True, max_length=71, rules=(_FIXED, _HASHED))] = ""
    expires_at: Annotated[str | None, Field("Time of expiry; unset: never.", format="date-time", max_length=64)] = None
    cluster_names: Annotated[
        Sequence[str],
        Field(
            "Ids of the clusters that it is limited to; none: it permits everything that its user may do.",
            list_type="set",
            max_items=MOST_CLUSTERS,
            items=Field(max_length=63),
        ),
    ] = ()
    description: Annotated[str, Field("What it is for.", max_length=1024)] = ""


class GrantStatus(Part):
    downstream_role: Annotated[str, Field("The ClusterRole that is bound in the cluster.")] = ""
    conditions: Conditions = ()


class ClusterRoleTemplateBinding(Object):
    """Role of a user or a group in one cluster."""

    cluster_name: Annotated[
        str,
        Field(
            "Id of the cluster, which is also the name of this namespace.",
            required=True,
            min_length=1,
            max_length=63,
            rules=(_FIXED,),
        ),
    ] = ""
    user_name: Annotated[str, Field("User that has the role; set this or groupName.", max_length=253)] = ""
    group_name: Annotated[str, Field("Group that has the role; set this or userName.", max_length=253)] = ""
    role_template_name: Annotated[
        str,
        Field(
            f"{', '.join(ROLES)}, or {ANY_ROLE}<a ClusterRole of that cluster>.",
            required=True,
            min_length=1,
            max_length=253,
            rules=(_FIXED,),
        ),
    ] = ""
    status: GrantStatus = GrantStatus()


USER: Kind[User] = Kind(names.MANAGEMENT_API_VERSION, "User", "users", User, namespaced=False)
TOKEN: Kind[Token] = Kind(names.MANAGEMENT_API_VERSION, "Token", "tokens", Token, namespaced=False)
GRANT: Kind[ClusterRoleTemplateBinding] = Kind(
    names.MANAGEMENT_API_VERSION,
    "ClusterRoleTemplateBinding",
    "clusterroletemplatebindings",
    ClusterRoleTemplateBinding,
)
KINDS: tuple[Kind[Any], ...] = (USER, TOKEN, GRANT)

# Of declared and management Clusters only metadata is read here: their kinds are provisioning's.
DECLARED_CLUSTER: Kind[Object] = Kind("provisioning.cattle.io/v1", "Cluster", "clusters", Object)
MANAGEMENT_CLUSTER: Kind[Object] = Kind(names.MANAGEMENT_API_VERSION, "Cluster", "clusters", Object, namespaced=False)

# Of RBAC objects only the fact that they changed is used here.
_RBAC = "rbac.authorization.k8s.io/v1"
CLUSTER_ROLE: Kind[Object] = Kind(_RBAC, "ClusterRole", "clusterroles", Object, namespaced=False)
CLUSTER_ROLE_BINDING: Kind[Object] = Kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", Object, namespaced=False)
CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS = CLUSTER_ROLE.target, CLUSTER_ROLE_BINDING.target


def role_of(grant: ClusterRoleTemplateBinding) -> str:
    """Return the ClusterRole of a grant in its cluster; empty if its role is unknown."""
    said = grant.role_template_name
    return said.removeprefix(ANY_ROLE) if said.startswith(ANY_ROLE) else ROLES.get(said, "")


def belongs_to(metadata: ObjectMeta, user: ObjectMeta) -> bool:
    """Return whether an object belongs to a User; also true while it has no owner reference."""
    known = metadata.owner(USER.name, USER.group)
    return known is None or known.uid == user.uid


def owned_by(user: ObjectMeta) -> OwnerReference:
    """Return an owner reference to a User, without `controller`: it only lets the object be deleted with the User."""
    return OwnerReference(api_version=USER.api_version, kind=USER.name, name=user.name, uid=user.uid)
