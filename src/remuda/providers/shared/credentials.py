"""Lookup of the Secret with a machine's credentials, and of the fields that a driver reads from it. Pure.

`namespace:name` names a Secret of another namespace, a plain name one in the machine's namespace. Its keys look like
`amazonec2credentialConfig-accessKey`; only the part after the last dash counts, so a plain `accessKey` works too.

A user who names a Secret must have the right to get it (`providers.author`). Where no admission checks this, the
namespaces that credentials are read from are the limit: the machine's own, the one that holds its tenant's credentials
(`namespace_for`), and those that all tenants share.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.kube.objects import Key
from remuda.providers import ProviderError

SHARED_NAMESPACES = frozenset({"cattle-global-data"})
_SUFFIX = "-credentials"


class BadReference(ProviderError):
    """Error with a message for users."""


def namespace_for(namespace: str) -> str:
    """Return the namespace that holds the credentials of a tenant whose clusters are in this one."""
    return namespace + _SUFFIX


def users_of(namespace: str) -> str:
    """Return the namespace of the machines that credentials in this one are for; empty: all namespaces."""
    return "" if namespace in SHARED_NAMESPACES else namespace.removesuffix(_SUFFIX)


def place(reference: str, namespace: str) -> Key:
    """Return the key of the Secret that a machine in a namespace refers to. Raises BadReference."""
    before, colon, name = reference.rpartition(":")
    if not colon:
        return Key(namespace, reference)
    own = (namespace, namespace_for(namespace))
    if before not in own and before not in SHARED_NAMESPACES:
        allowed = ", ".join((*own, *sorted(SHARED_NAMESPACES)))
        raise BadReference(
            f"cloudCredentialSecretName {reference} is in namespace {before}, but machines in {namespace} can only use "
            f"credentials from these namespaces: {allowed}"
        )
    if not name:
        raise BadReference(f"cloudCredentialSecretName {reference} has no name after the colon")
    return Key(before, name)


def names(reference: str, namespace: str, key: Key) -> bool:
    """Return True if a machine in a namespace means this Secret by its reference."""
    try:
        return bool(reference) and place(reference, namespace) == key
    except BadReference:
        return False


def fields(data: Mapping[str, bytes]) -> dict[str, bytes]:
    """By the names of options."""
    return {key.rpartition("-")[2]: value for key, value in sorted(data.items())}
