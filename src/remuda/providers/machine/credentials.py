"""Which Secret a machine's credentials are in, and what a driver takes of it. Pure.

`namespace:name` names a Secret of a shared namespace, a plain name one beside the machine. Its keys look like
`amazonec2credentialConfig-accessKey`; only what stands behind the last dash counts, so a plain `accessKey` will do.

A shared Secret can be named by anybody who may make a machine. So only namespaces that are kept for it are read from.
"""

from __future__ import annotations

from collections.abc import Mapping

from remuda.kube.objects import Key

SHARED_NAMESPACES = frozenset({"cattle-global-data"})


class BadReference(Exception):
    """The text is for users."""


def place(reference: str, namespace: str) -> Key:
    """Where the Secret is that a machine in a namespace refers to. Raises BadReference."""
    before, colon, name = reference.rpartition(":")
    if not colon:
        return Key(namespace, reference)
    if before != namespace and before not in SHARED_NAMESPACES:
        allowed = ", ".join(sorted(SHARED_NAMESPACES))
        raise BadReference(
            f"cloudCredentialSecretName {reference} is in the namespace {before}: "
            f"credentials are read from the machine's own namespace and from {allowed} only"
        )
    if not name:
        raise BadReference(f"cloudCredentialSecretName {reference} has no name behind the colon")
    return Key(before, name)


def fields(data: Mapping[str, bytes]) -> dict[str, bytes]:
    """By the names of options."""
    return {key.rpartition("-")[2]: value for key, value in sorted(data.items())}
