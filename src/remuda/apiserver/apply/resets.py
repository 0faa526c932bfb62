"""Which fields a write cannot touch, and so cannot own, by kind and subresource.

Where there is a status subresource, it writes status and nothing else, and other writes leave status alone. About
metadata kinds differ: a status write to a custom resource leaves all of it, to most built-in kinds it may set labels
and annotations. The registry decides what is stored; this only has to agree with it.
"""

from __future__ import annotations

from remuda.apiserver.apply.blanks import is_typed
from remuda.apiserver.apply.fieldset import LEAF, Fields, fields_at

NOTHING: Fields = LEAF
STATUS_ONLY = fields_at("metadata", "spec")  # what a status write leaves alone
SPEC_ONLY = fields_at("status")  # what other writes leave alone

_STATUS_AND_METADATA = fields_at("spec")
_UNLIKE_OTHERS: dict[tuple[str, str, str], Fields] = {
    ("apps/v1", "Deployment", "status"): fields_at("spec", "metadata.labels"),
    ("v1", "Pod", "status"): fields_at("spec", "metadata.deletionTimestamp", "metadata.ownerReferences"),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", ""): fields_at("spec", "status"),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", "status"): fields_at("spec", "status.conditions"),
    ("certificates.k8s.io/v1", "CertificateSigningRequest", "approval"): fields_at("spec", "status.certificate"),
    ("networking.k8s.io/v1", "ServiceCIDR", "status"): STATUS_ONLY,
}
# Typed groups whose status writes leave metadata alone, as those of custom resources do.
_STRICT_GROUPS = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "resource.k8s.io",
        "storage.k8s.io",
    }
)


def reset_fields(api_version: str, kind: str, *, subresource: str = "", has_status: bool) -> Fields:
    """For the `reset` of `on_update` and `apply`."""
    found = _UNLIKE_OTHERS.get((api_version, kind, subresource))
    if found is not None:
        return found
    if subresource != "status":
        return SPEC_ONLY if has_status else NOTHING
    lenient = is_typed(api_version, kind) and api_version.partition("/")[0] not in _STRICT_GROUPS
    return _STATUS_AND_METADATA if lenient else STATUS_ONLY
