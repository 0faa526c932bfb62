"""Authenticate Jobs: the manager signs every Job that it makes for the runner, and the runner runs no other Job.

A Job is code execution on the manager's machine, and anybody with `edit` in a namespace can create one there. So the
manager puts an HMAC into an annotation of the Job. The key is a file in the manager's data directory; no API serves it.

The mark covers the namespace, the name, the uid of the controlling owner, the whole spec with its Pod template, the
time, the rights that the Job's driver needs on this machine, and a digest of every Secret and ConfigMap that the Job
mounts. At each attempt the runner compares these digests with the bytes that it writes for the program, so that there
is no gap between the check and the use.

The API server fills in defaults between the signature and the check. Both sides therefore drop known defaults before
they compute the HMAC; any other difference makes the mark invalid. The Job's own uid is not known when it is signed.
The creation time, which only the API server can set, takes its place: a mark is good for Jobs that were created within
a few minutes of it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from remuda.jobs import JobRunnerError
from remuda.kube import clock
from remuda.kube.quantity import QuantityError, canonical_quantity

Json = dict[str, Any]
Inputs = Mapping[str, Mapping[str, bytes]]  # contents by `input_name`

ANNOTATION = "remuda.dev/job-mark"
FILE = "job.key"  # in the manager's data directory

_KEY_BYTES = 32
_SKEW_SECONDS = 300.0  # between the clocks of the manager and of the API server
_GENERATED_LABELS = frozenset(
    {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
)
# Defaults of the API server. Any other value stays, and so makes the mark invalid.
_SPEC_DEFAULTS: Json = {
    "parallelism": 1,
    "completions": 1,
    "completionMode": "NonIndexed",
    "manualSelector": False,
    "podReplacementPolicy": "TerminatingOrFailed",
}
_POD_DEFAULTS: Json = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER_DEFAULTS: Json = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_VOLUME_DEFAULTS: Json = {"defaultMode": 0o644, "type": ""}


class BadMark(JobRunnerError):
    """Job that the manager did not create; the text gives the reason."""


class JobKey:
    """Secret key of the manager. It never appears in a repr."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != _KEY_BYTES:
            raise ValueError(f"the Job key must have {_KEY_BYTES} bytes, not {len(secret)}")
        self._secret = secret

    @classmethod
    def new(cls) -> JobKey:
        return cls(secrets.token_bytes(_KEY_BYTES))

    @classmethod
    def load(cls, path: Path) -> JobKey:
        """Read the key from a file that only the manager's user can read; make it first where there is none.
        Raises OSError and ValueError."""
        if not path.exists():
            _write_once(path, secrets.token_bytes(_KEY_BYTES))
        return cls(path.read_bytes())

    def mac(self, content: bytes) -> str:
        return hmac.new(self._secret, content, hashlib.sha256).hexdigest()

    def __repr__(self) -> str:
        return "<JobKey>"


def _write_once(path: Path, secret: bytes) -> None:
    """Write the file whole or not at all, by a link, which never replaces the key of another process."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
    finally:
        draft.unlink(missing_ok=True)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Value of the annotation, as JSON."""

    issued: str
    inputs: Mapping[str, str]  # digests by `input_name`
    mac: str
    rights: Sequence[str] = ()  # rights on the runner's machine; without any, the program runs as a separate user


def input_name(plural: str, name: str) -> str:
    return f"{plural}/{name}"


def digest(data: Mapping[str, bytes]) -> str:
    """Return the digest of the contents of a Secret or a ConfigMap."""
    content = {key: hashlib.sha256(value).hexdigest() for key, value in data.items()}
    return hashlib.sha256(_canonical(content)).hexdigest()


def sign(key: JobKey, job: Json, inputs: Inputs, rights: Sequence[str] = ()) -> Json:
    """Return the Job with its mark, ready to be created. `inputs`: everything that it mounts."""
    issued, digests = clock.now(), {name: digest(data) for name, data in inputs.items()}
    draft = Mark(issued=issued, inputs=digests, rights=rights, mac="")
    mark = msgspec.structs.replace(draft, mac=_mac(key, job, draft))
    metadata = job["metadata"]
    annotations = {**(metadata.get("annotations") or {}), ANNOTATION: msgspec.json.encode(mark).decode()}
    return {**job, "metadata": {**metadata, "annotations": annotations}}


def verify(key: JobKey, job: Json) -> Mark:
    """Return the mark of a Job as the API server has it. Raises BadMark."""
    metadata = job["metadata"]
    text = (metadata.get("annotations") or {}).get(ANNOTATION)
    if not text:
        raise BadMark(
            f"the manager did not make this Job: it has no annotation {ANNOTATION}. The job runner runs no other Jobs"
        )
    try:
        mark = msgspec.json.decode(text, type=Mark)
        age = clock.parse(metadata["creationTimestamp"]) - clock.parse(mark.issued)
    except (msgspec.MsgspecError, ValueError, KeyError):
        raise BadMark("the manager did not make this Job: its mark is malformed") from None
    # In constant time: the duration of the check must not reveal how much of a forged MAC is right.
    if not hmac.compare_digest(mark.mac.encode(), _mac(key, job, mark).encode()):
        raise BadMark(
            "the manager did not make this Job: its mark is for another namespace, name, owner or spec, or another "
            "manager made it"
        )
    # After the MAC, which covers `issued`. A Job that was deleted and created again with an old mark is refused here.
    if abs(age) > _SKEW_SECONDS:
        raise BadMark(f"the manager did not make this Job: its mark of {mark.issued} was used before, or is too old")
    return mark


def _mac(key: JobKey, job: Json, mark: Mark) -> str:
    metadata = job["metadata"]
    covered = {
        "version": 1,
        "namespace": metadata.get("namespace", ""),
        "name": metadata.get("name", ""),
        "owner": _owner(metadata),
        "spec": _spec(job["spec"]),
        "issued": mark.issued,
        "inputs": dict(mark.inputs),
        "rights": list(mark.rights),
    }
    return key.mac(_canonical(covered))


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _owner(metadata: Json) -> str:
    references = metadata.get("ownerReferences") or ()
    return next((one.get("uid", "") for one in references if one.get("controller")), "")


# ---- defaults of the API server ------------------------------------------------------------------------------------


def _spec(spec: Json) -> Json:
    """Drop defaults, and fields that may differ: `suspend` changes at any time; the API server makes the selector, and
    the runner does not read it."""
    kept = _without(spec, _SPEC_DEFAULTS, "suspend", "selector")
    return {**kept, "template": _template(spec.get("template") or {})}


def _template(template: Json) -> Json:
    metadata = _without(template.get("metadata") or {}, {"creationTimestamp": None}, "labels")
    labels = (template.get("metadata") or {}).get("labels") or {}
    metadata["labels"] = {name: value for name, value in labels.items() if name not in _GENERATED_LABELS}
    return {**template, "metadata": metadata, "spec": _pod(template.get("spec") or {})}


def _pod(pod: Json) -> Json:
    account = {"serviceAccount": pod.get("serviceAccountName")}  # the old name of the same field
    kept = _without(pod, {**_POD_DEFAULTS, **account})
    kept["containers"] = [_container(one) for one in pod.get("containers") or ()]
    kept["volumes"] = [_volume(one) for one in pod.get("volumes") or ()]
    return kept


def _container(container: Json) -> Json:
    """Drop defaults, also that of `imagePullPolicy`, which depends on the image. The runner pulls no images."""
    kept = _without(container, _CONTAINER_DEFAULTS, "imagePullPolicy")
    if resources := kept.get("resources"):
        kept["resources"] = {name: _quantities(value) for name, value in resources.items()}
    return kept


def _quantities(value: Any) -> Any:
    """Return quantities in the form that the API server gives them: 0.5 becomes 500m."""
    if not isinstance(value, dict):
        return value
    try:
        return {name: canonical_quantity(one) for name, one in value.items()}
    except QuantityError:
        return value


def _volume(volume: Json) -> Json:
    return {
        name: _without(value, _VOLUME_DEFAULTS) if isinstance(value, dict) else value for name, value in volume.items()
    }


def _without(fields: Json, defaults: Json, *ignored: str) -> Json:
    # Types are compared too: in Python True equals 1, so `completions: true` would pass for the default.
    missing = object()
    return {
        name: value
        for name, value in fields.items()
        if name not in ignored
        and (type(value), value) != (type(defaults.get(name, missing)), defaults.get(name, missing))
    }
