"""Pod spec of pods and pod templates: dynamic defaults, and the checks that users are likely to meet.

Checked: containers (names, images, ports, environment, mounts, probes, resources), volumes (names, one source each),
policies, selectors and names. Not checked: volume sources, affinity, DNS configuration and security contexts, because
the engine runs no pods; the cluster that runs them checks those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from remuda.apiserver.kinds.declare import non_negative, one_of
from remuda.apiserver.resource import Obj
from remuda.kube import errors, names
from remuda.kube.errors import FieldError
from remuda.kube.quantity import Quantity

PORT_RANGE = "must be between 1 and 65535, inclusive"
PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_VALUE_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_INT32_MAX = 2**31 - 1

_has_port_characters = re.compile("[-a-z0-9]+").fullmatch
_has_letter = re.compile("[a-z]").search
_is_env_name = re.compile("[ -<>-~]+").fullmatch  # printable ASCII without "="


def default_pod_spec(spec: Obj) -> None:
    """Set the defaults of a normalized spec. Idempotent."""
    for container in _all_containers(spec):
        if not container.get("imagePullPolicy"):
            container["imagePullPolicy"] = _pull_policy(container.get("image", ""))
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    # Keep the field with the older name equal to this one.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _default_volume(volume: Obj) -> None:
    if len(volume) == (1 if "name" in volume else 0):
        volume["emptyDir"] = {}
    image = volume.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = _pull_policy(image.get("reference", ""))


def _pull_policy(image: str) -> str:
    """Return the default pull policy: Always for the tag latest or no tag."""
    if not image:
        return "IfNotPresent"
    reference, digest, _ = image.partition("@")
    tag = reference.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or (not tag and not digest) else "IfNotPresent"


def _all_containers(spec: Obj) -> Iterable[Obj]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def validate_template(template: Obj, path: str) -> list[FieldError]:
    """Return the errors in a controller's pod template. Metadata paths are upstream's, without `metadata`."""
    meta = template.get("metadata") or {}
    found = names.validate_labels(meta.get("labels") or {}, f"{path}.labels")
    found += names.validate_annotations(meta.get("annotations") or {}, f"{path}.annotations")
    spec = template.get("spec") or {}
    found += validate_pod_spec(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        why = "ephemeral containers not allowed in pod template"
        found.append(errors.forbidden(f"{path}.spec.ephemeralContainers", why))
    return found


def validate_pod_spec(spec: Obj, path: str) -> list[FieldError]:
    volumes, found = _validate_volumes(spec.get("volumes") or (), f"{path}.volumes")
    found += _validate_containers(spec, volumes, path)
    found += one_of(spec.get("restartPolicy"), f"{path}.restartPolicy", _RESTART_POLICIES)
    found += one_of(spec.get("dnsPolicy"), f"{path}.dnsPolicy", _DNS_POLICIES)
    found += names.validate_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for field, check in _NAMED:
        if given := spec.get(field):
            found += [errors.invalid(f"{path}.{field}", given, why) for why in check(given)]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _INT32_MAX:
        why = f"must be between 1 and {_INT32_MAX}, inclusive"
        found.append(errors.invalid(f"{path}.activeDeadlineSeconds", deadline, why))
    if tolerations := spec.get("tolerations"):
        found += validate_tolerations(tolerations, f"{path}.tolerations")
    preemption = ("PreemptLowerPriority", "Never")
    return found + one_of(spec.get("preemptionPolicy"), f"{path}.preemptionPolicy", preemption)


_NAMED = (
    ("serviceAccountName", names.subdomain_name),
    ("nodeName", names.subdomain_name),
    ("hostname", names.dns1123_label),
    ("subdomain", names.dns1123_label),
    ("priorityClassName", names.subdomain_name),
    ("runtimeClassName", names.dns1123_subdomain),
)


def _validate_volumes(volumes: Iterable[Obj], path: str) -> tuple[set[str], list[FieldError]]:
    known: set[str] = set()
    found: list[FieldError] = []
    for index, volume in enumerate(volumes):
        here = _validate_volume(volume, f"{path}[{index}]")
        name = volume.get("name") or ""
        if name in known:
            here.append(errors.duplicate(f"{path}[{index}].name", name))
        if not here:
            known.add(name)
        found += here
    return known, found


def _validate_volume(volume: Obj, path: str) -> list[FieldError]:
    sources = [field for field in volume if field != "name"]
    found = [errors.forbidden(f"{path}.{field}", "may not specify more than 1 volume type") for field in sources[1:]]
    return found + _label_errors(volume.get("name"), f"{path}.name")


def _label_errors(name: str | None, path: str) -> list[FieldError]:
    if not name:
        return [errors.required(path)]
    return [errors.invalid(path, name, why) for why in names.dns1123_label(name)]


def _validate_containers(spec: Obj, volumes: set[str], path: str) -> list[FieldError]:
    if not spec.get("containers"):
        return [errors.required(f"{path}.containers")]
    found: list[FieldError] = []
    used: set[str] = set()
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            here = f"{path}.{field}[{index}]"
            found += _validate_container(container, volumes, here)
            name = container.get("name") or ""
            if name in used:
                found.append(errors.duplicate(f"{here}.name", name))
            used.add(name)
            found += _validate_hooks(container, here, is_init=field == "initContainers")
    return found


def _validate_container(container: Obj, volumes: set[str], path: str) -> list[FieldError]:
    found = _label_errors(container.get("name"), f"{path}.name")
    if not container.get("image"):
        found.append(errors.required(f"{path}.image"))
    found += one_of(container.get("terminationMessagePolicy"), f"{path}.terminationMessagePolicy", _MESSAGE_POLICIES)
    found += _validate_ports(container.get("ports") or (), f"{path}.ports")
    found += _validate_environment(container.get("env") or (), f"{path}.env")
    found += _validate_mounts(container.get("volumeMounts") or (), volumes, f"{path}.volumeMounts")
    found += one_of(container.get("imagePullPolicy"), f"{path}.imagePullPolicy", _PULL_POLICIES)
    if resources := container.get("resources"):
        found += validate_resources(resources, f"{path}.resources")
    return found


def _validate_ports(ports: Iterable[Obj], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    used: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        if name := port.get("name"):
            complaints = port_name(name)
            found += [errors.invalid(f"{here}.name", name, why) for why in complaints]
            if not complaints and name in used:
                found.append(errors.duplicate(f"{here}.name", name))
            used.add(name)
        number = port.get("containerPort")
        found += port_number(number, f"{here}.containerPort") if number else [errors.required(f"{here}.containerPort")]
        if port.get("hostPort"):
            found += port_number(port["hostPort"], f"{here}.hostPort")
        found += one_of(port.get("protocol"), f"{here}.protocol", PROTOCOLS)
    return found


def port_number(number: int, path: str) -> list[FieldError]:
    return [] if 1 <= number <= 65535 else [errors.invalid(path, number, PORT_RANGE)]


def port_number_or_name(port: Any, path: str) -> list[FieldError]:
    if isinstance(port, int):
        return port_number(port, path)
    return [errors.invalid(path, port, why) for why in port_name(str(port))]


def port_name(name: str) -> list[str]:
    found = ["must be no more than 15 characters"] if len(name) > 15 else []
    if not _has_port_characters(name):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _has_letter(name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def _validate_environment(variables: Iterable[Obj], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if not name:
            found.append(errors.required(f"{path}[{index}].name"))
        elif not _is_env_name(name):
            why = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            found.append(errors.invalid(f"{path}[{index}].name", name, why))
        if "valueFrom" in variable:
            found += _validate_value_source(variable, f"{path}[{index}].valueFrom")
    return found


def _validate_value_source(variable: Obj, path: str) -> list[FieldError]:
    sources = [field for field in _VALUE_SOURCES if variable["valueFrom"].get(field) is not None]
    if not sources:
        listed = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        return [errors.invalid(path, "", f"must specify one of: {listed}")]
    if variable.get("value"):
        return [errors.invalid(path, "", "may not be specified when `value` is not empty")]
    if len(sources) > 1:
        return [errors.invalid(path, "", "may not have more than one field specified at a time")]
    return []


def _validate_mounts(mounts: Iterable[Obj], volumes: set[str], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    used: set[str] = set()
    for index, mount in enumerate(mounts):
        name, at = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            found.append(errors.required(f"{path}[{index}].name"))
        if name not in volumes:
            found.append(errors.FieldError(errors.NOT_FOUND, f"{path}[{index}].name", name, ""))
        if not at:
            found.append(errors.required(f"{path}[{index}].mountPath"))
        if at in used:
            found.append(errors.invalid(f"{path}[{index}].mountPath", at, "must be unique"))
        used.add(at)
    return found


def _validate_hooks(container: Obj, path: str, *, is_init: bool) -> list[FieldError]:
    found: list[FieldError] = []
    if is_init and container.get("restartPolicy") != "Always":
        why = "may not be set for init containers without restartPolicy=Always"
        return [errors.forbidden(f"{path}.{field}", why) for field in ("lifecycle", *_PROBES) if field in container]
    for field in _PROBES:
        if (probe := container.get(field)) is not None:
            found += _validate_probe(probe, f"{path}.{field}", single_success=field != "readinessProbe")
    return found


def _validate_probe(probe: Obj, path: str, *, single_success: bool) -> list[FieldError]:
    handlers = [field for field in _HANDLERS if probe.get(field) is not None]
    found = [] if handlers else [errors.required(path, "must specify a handler type")]
    found += [errors.forbidden(f"{path}.{field}", "may not specify more than 1 handler type") for field in handlers[1:]]
    if "exec" in handlers and not probe["exec"].get("command"):
        found.append(errors.required(f"{path}.exec.command"))
    for field in ("httpGet", "tcpSocket", "grpc"):
        if field in handlers:
            found += port_number_or_name(probe[field].get("port", 0), f"{path}.{field}.port")
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        found += non_negative(probe.get(field), f"{path}.{field}")
    if single_success and probe.get("successThreshold") != 1:
        found.append(errors.invalid(f"{path}.successThreshold", probe.get("successThreshold"), "must be 1"))
    return found


def validate_resources(resources: Obj, path: str) -> list[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found = _amount_errors(limits, f"{path}.limits") + _amount_errors(requests, f"{path}.requests")
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is not None and Quantity.parse(amount) > Quantity.parse(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            found.append(errors.invalid(f"{path}.requests", amount, why))
    return found


def _amount_errors(amounts: dict[str, str], path: str) -> list[FieldError]:
    return [
        errors.invalid(f"{path}[{name}]", amount, "must be greater than or equal to 0")
        for name, amount in amounts.items()
        if Quantity.parse(amount).nanos < 0
    ]


def validate_tolerations(tolerations: Iterable[Obj], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        found += _validate_toleration(toleration, f"{path}[{index}]")
    return found


def _validate_toleration(toleration: Obj, path: str) -> list[FieldError]:
    key, operator, value = toleration.get("key"), toleration.get("operator") or "", toleration.get("value") or ""
    found = [errors.invalid(f"{path}.key", key, why) for why in names.qualified_name(key)] if key else []
    if not key and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(errors.invalid(f"{path}.operator", operator, why))
    effect = toleration.get("effect") or ""
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(errors.invalid(f"{path}.effect", effect, why))
    if operator == "Exists" and value:
        why = "value must be empty when `operator` is 'Exists'"
        found.append(errors.invalid(f"{path}.operator", value, why))
    elif operator in ("", "Equal") and (complaints := names.label_value(value)):
        found.append(errors.invalid(f"{path}.operator", value, ";".join(complaints)))
    elif operator not in ("", "Equal", "Exists", "Lt", "Gt"):
        found.append(errors.not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    return found + (one_of(effect, f"{path}.effect", _TAINT_EFFECTS) if effect else [])
