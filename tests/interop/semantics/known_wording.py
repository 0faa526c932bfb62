"""Differences in sentences only, each with the reason why it stays. Codes, reasons, order and bytes never differ.

Per case: how upstream's sentence begins, and why ours is another. Any other sentence must be the same, and an entry
that is no longer needed fails its test, so this list only says what is true.
"""

from __future__ import annotations

_PROTOBUF = "a list of media types with protobuf, which ours does not serve and does not offer"
_GO_DECODER = "how Go's decoders and its table of types fail; ours names the field or the kind"
_SCHEME = "names a Go source file; ours says which version or kind it wants"
_ETCD = "shows a key of etcd and its error code"
_GO_STRUCTS = "shows an object as a Go struct, with Go's names for its fields; ours shows it as JSON"
_GO_TYPES = "ends with the name of a Go type"

_BAD_VERSIONS = 'CustomResourceDefinition.apiextensions.k8s.io "things.bad-TAG.dev" is invalid: '

KNOWN_WORDING: dict[str, dict[str, str]] = {
    "definitions/bad_versions": {
        'Invalid value: [{"Name":': _GO_STRUCTS,
        f'{_BAD_VERSIONS}[spec.versions: Invalid value: [{{"Name":': _GO_STRUCTS,
        f'{_BAD_VERSIONS}spec.versions: Invalid value: [{{"Name":': _GO_STRUCTS,
    },
    "errors/accepts_nobody_can_serve": {"406: Not Acceptable": _PROTOBUF, "only the following media types": _PROTOBUF},
    "errors/accepts_with_a_choice": {"406: Not Acceptable": _PROTOBUF},
    "errors/routes_of_what_is_built_in": {"406: Not Acceptable": _PROTOBUF},
    "kinds/job_templates_stay": {
        'Invalid value: {"labels":': _GO_STRUCTS,
        'Job.batch "a" is invalid: spec.template: ': _GO_STRUCTS,
    },
    "kinds/volume_attachments": {
        'Invalid value: {"Attacher":': _GO_STRUCTS,
        "VolumeAttachment.storage.k8s.io ": _GO_STRUCTS,
    },
    "patch/merge_of_identity": {' "" is invalid: patch: ': _GO_DECODER, 'Invalid value: "{': _GO_DECODER},
    "patch/strategic_with_a_wrong_type": {' "" is invalid: patch: ': _GO_DECODER, 'Invalid value: "map[': _GO_DECODER},
    "verbs/create_of_another_kind": {'ConfigMap in version "v2" cannot be handled': _SCHEME},
    "verbs/delete_with_options_of_another_kind": {'no kind "ConfigMap" is registered': _SCHEME},
    "verbs/update_with_another_uid": {"Operation cannot be fulfilled on configmaps": _ETCD},
    "tables/metadata_only": {"you requested PartialObjectMetadata": _GO_TYPES},
}


def unexplained(case_id: str, theirs: list[str], ours: list[str]) -> list[tuple[str, str]]:
    """The sentences that differ without an entry here."""
    known = KNOWN_WORDING.get(case_id, {})
    pairs = zip(theirs, ours, strict=True)
    return [(left, right) for left, right in pairs if left != right and not left.startswith(tuple(known))]


def unneeded(case_id: str, theirs: list[str], ours: list[str]) -> list[str]:
    """Entries that explain nothing any more."""
    different = [left for left, right in zip(theirs, ours, strict=True) if left != right]
    known = KNOWN_WORDING.get(case_id, {})
    return [start for start in known if not any(sentence.startswith(start) for sentence in different)]
