"""Webhook configurations and APIServices. The server calls no webhooks and no other servers.

Webhook configurations can be read, but the server rejects new ones (`refuse_webhooks`), because their authors rely on
the calls.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.kinds.columns import AGE, NAME, PLAIN, count, integer
from remuda.apiserver.kinds.declare import Rules, declare
from remuda.apiserver.resource import Obj
from remuda.kube import errors, names
from remuda.kube.admission import ALLOWED, AdmissionResult, Review
from remuda.kube.errors import FieldError

ADMISSION_GROUP = "admissionregistration.k8s.io"
API_GROUP = "apiregistration.k8s.io"


def _validate_webhooks(configuration: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    used: set[str] = set()
    for index, hook in enumerate(configuration.get("webhooks") or ()):
        path, name = f"webhooks[{index}]", hook.get("name") or ""
        found += _hook_errors(hook, name, path)
        if name in used:
            found.append(errors.duplicate(f"{path}.name", name))
        used.add(name)
    return found


def _hook_errors(hook: Obj, name: str, path: str) -> list[FieldError]:
    where = f"{path}.name"
    if not name:
        found = [errors.required(where)]
    elif complaints := names.dns1123_subdomain(name):
        found = [errors.invalid(where, name, why) for why in complaints]
    elif name.count(".") < 2:
        why = "should be a domain with at least three segments separated by dots"
        found = [errors.invalid(where, name, why)]
    else:
        found = []
    if hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
        given = hook.get("sideEffects")
        missing = errors.required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
        wrong = errors.not_supported(f"{path}.sideEffects", given, ("None", "NoneOnDryRun"))
        found.append(missing if given is None else wrong)
    versions = hook.get("admissionReviewVersions") or []
    if not versions:
        found.append(errors.required(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1"))
    client = hook["clientConfig"]
    if (client.get("url") is None) == (client.get("service") is None):
        found.append(errors.required(f"{path}.clientConfig", "exactly one of url or service is required"))
    timeout = hook.get("timeoutSeconds")
    if timeout is not None and not 1 <= timeout <= 30:
        why = "the timeout value must be between 1 and 30 seconds"
        found.append(errors.invalid(f"{path}.timeoutSeconds", timeout, why))
    return found


_WEBHOOKS: dict[str, Any] = {
    "namespaced": False,
    "categories": ("api-extensions",),
    "allow_unconditional_update": False,
    "columns": (NAME, integer("Webhooks", count("webhooks")), AGE),
}

MUTATING_WEBHOOKS = declare(
    ADMISSION_GROUP,
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    Rules(validate=_validate_webhooks),
    **_WEBHOOKS,
)
VALIDATING_WEBHOOKS = declare(
    ADMISSION_GROUP,
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    Rules(validate=_validate_webhooks),
    **_WEBHOOKS,
)

WEBHOOK_PLURALS = (MUTATING_WEBHOOKS.plural, VALIDATING_WEBHOOKS.plural)
_NOT_CALLED = (
    "this API server (remuda, embedded engine) does not call admission webhooks yet, so the configuration would have "
    "no effect; remove it. The kinds of remuda are checked without webhooks by `remuda up`; for rules of your own use "
    "x-kubernetes-validations in a CustomResourceDefinition, or run on a Kubernetes API server"
)


def refuse_webhooks(review: Review) -> AdmissionResult:
    """Reject writes of webhook configurations. Existing ones can be deleted, even with finalizers."""
    leaving = bool(((review.new or {}).get("metadata") or {}).get("deletionTimestamp"))
    return ALLOWED if leaving else AdmissionResult(denied=_NOT_CALLED)


def _validate_api_service(service: Obj) -> list[FieldError]:
    spec = service["spec"]
    name = service["metadata"].get("name", "")
    wanted = f"{spec.get('version', '')}.{spec.get('group', '')}"
    found = []
    if name != wanted:
        found.append(errors.invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"'))
    for field in ("groupPriorityMinimum", "versionPriority"):
        if (spec.get(field) or 0) <= 0:
            found.append(errors.invalid(f"spec.{field}", spec.get(field, 0), "must be positive"))
    return found


API_SERVICES = declare(
    API_GROUP,
    "v1",
    "APIService",
    "apiservices",
    Rules(validate=_validate_api_service),
    namespaced=False,
    categories=("api-extensions",),
    has_status=True,
    has_generation=False,
    allow_unconditional_update=False,
    columns=PLAIN,
)

RESOURCES = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, API_SERVICES)
