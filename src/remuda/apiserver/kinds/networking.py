"""The networking group, as plain records: the engine neither routes nor filters traffic."""

from __future__ import annotations

from typing import Any

from remuda.apiserver.kinds.columns import AGE, NAME, at, format_selector, string, value
from remuda.apiserver.kinds.core_services import balancer_addresses
from remuda.apiserver.kinds.declare import Rules, declare, one_of
from remuda.apiserver.kinds.pod_spec import PROTOCOLS, port_name, port_number, port_number_or_name
from remuda.apiserver.kinds.storage import marked_default
from remuda.apiserver.resource import Obj
from remuda.kube import errors, names
from remuda.kube.errors import FieldError
from remuda.kube.selectors import validate_label_selector

GROUP = "networking.k8s.io"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


def _validate_ingress(ingress: Obj) -> list[FieldError]:
    spec = ingress["spec"]
    rules, backend = spec.get("rules") or [], spec.get("defaultBackend")
    found = []
    if not rules and backend is None:
        found.append(errors.invalid("spec", rules or None, "either `defaultBackend` or `rules` must be specified"))
    if backend is not None:
        found += _backend_errors(backend, "spec.defaultBackend")
    for index, rule in enumerate(rules):
        found += _rule_errors(rule, f"spec.rules[{index}]")
    if name := spec.get("ingressClassName"):
        found += [errors.invalid("spec.ingressClassName", name, why) for why in names.subdomain_name(name)]
    return found


def _rule_errors(rule: Obj, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    if host := rule.get("host"):
        bare = host.removeprefix("*.")
        found += [errors.invalid(f"{path}.host", host, why) for why in names.dns1123_subdomain(bare)]
    http = rule.get("http")
    if http is None:
        return found
    if not http.get("paths"):
        return [*found, errors.required(f"{path}.http.paths")]
    for index, entry in enumerate(http["paths"]):
        found += _path_errors(entry, f"{path}.http.paths[{index}]")
    return found


def _path_errors(entry: Obj, path: str) -> list[FieldError]:
    type_, given = entry.get("pathType"), entry.get("path") or ""
    if type_ is None:
        return [errors.required(f"{path}.pathType", "pathType must be specified")]
    found = one_of(type_, f"{path}.pathType", _PATH_TYPES)
    needs_slash = type_ in ("Exact", "Prefix") or (type_ == "ImplementationSpecific" and given)
    if needs_slash and not given.startswith("/"):
        found.append(errors.invalid(f"{path}.path", given, "must be an absolute path"))
    return found + _backend_errors(entry["backend"], f"{path}.backend")


def _backend_errors(backend: Obj, path: str) -> list[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [errors.invalid(path, "", "cannot set both resource and service backends")]
    if service is None:
        missing = errors.invalid(path, "", "resource or service backend is required")
        return [missing] if resource is None else []
    found = [] if service.get("name") else [errors.required(f"{path}.service.name")]
    port = service["port"]
    if port.get("name") and port.get("number"):
        found.append(errors.invalid(path, "", "cannot set both port name & port number"))
    elif port.get("name"):
        where = f"{path}.service.port.name"
        found += [errors.invalid(where, port["name"], why) for why in port_name(port["name"])]
    elif port.get("number"):
        found += port_number(port["number"], f"{path}.service.port.number")
    else:
        found.append(errors.required(path, "port name or number is required"))
    return found


def _hosts(ingress: Obj) -> str:
    rules = at(ingress, "spec", "rules", default=())
    hosts = [rule["host"] for rule in rules if rule.get("host")]
    if not hosts:
        return "*"
    shown = ",".join(hosts[:3])
    return shown if len(hosts) <= 3 else f"{shown} + {len(rules) - 3} more..."


INGRESSES = declare(
    GROUP,
    "v1",
    "Ingress",
    "ingresses",
    Rules(validate=_validate_ingress),
    short_names=("ing",),
    has_status=True,
    columns=(
        NAME,
        string("Class", value("spec", "ingressClassName", default="<none>")),
        string("Hosts", _hosts),
        string("Address", lambda obj: balancer_addresses(at(obj, "status", "loadBalancer", "ingress", default=()))),
        string("Ports", lambda obj: "80, 443" if at(obj, "spec", "tls") else "80"),
        AGE,
    ),
)


def _validate_class(ingress_class: Obj) -> list[FieldError]:
    controller = ingress_class["spec"].get("controller") or ""
    domain, slash, rest = controller.partition("/")
    if not controller:
        return [errors.required("spec.controller")]
    if not slash or not domain or not rest:
        why = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [errors.invalid("spec.controller", controller, why)]
    return [errors.invalid("spec.controller", domain, why) for why in names.dns1123_subdomain(domain)]


def _validate_class_update(new: Obj, old: Obj) -> list[FieldError]:
    given, before = new["spec"].get("controller"), old["spec"].get("controller")
    return [] if given == before else [errors.invalid("spec.controller", given, "field is immutable")]


def _parameters(ingress_class: Obj) -> str:
    given = at(ingress_class, "spec", "parameters", default=None)
    if given is None:
        return "<none>"
    group = f".{given['apiGroup']}" if given.get("apiGroup") else ""
    return f"{given.get('kind')}{group}/{given.get('name')}"


INGRESS_CLASSES = declare(
    GROUP,
    "v1",
    "IngressClass",
    "ingressclasses",
    Rules(validate=_validate_class, validate_update=_validate_class_update),
    namespaced=False,
    columns=(
        marked_default("ingressclass.kubernetes.io/is-default-class"),
        string("Controller", value("spec", "controller")),
        string("Parameters", _parameters),
        AGE,
    ),
)


def _default_policy(policy: Obj) -> None:
    spec = policy["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _validate_policy(policy: Obj) -> list[FieldError]:
    spec = policy["spec"]
    found = validate_label_selector(spec["podSelector"], "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            found += _policy_rule_errors(rule, peers, f"spec.{direction}[{index}]")
    types = spec.get("policyTypes") or []
    if len(types) > 2:
        return [*found, errors.invalid("spec.policyTypes", types, "may not specify more than two policyTypes")]
    for index, type_ in enumerate(types):
        found += one_of(type_, f"spec.policyTypes[{index}]", ("Ingress", "Egress"))
    return found


def _policy_rule_errors(rule: Obj, peers: str, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, port in enumerate(rule.get("ports") or ()):
        found += _policy_port_errors(port, f"{path}.ports[{index}]")
    for index, peer in enumerate(rule.get(peers) or ()):
        found += _peer_errors(peer, f"{path}.{peers}[{index}]")
    return found


def _policy_port_errors(port: Obj, path: str) -> list[FieldError]:
    found = one_of(port.get("protocol"), f"{path}.protocol", PROTOCOLS)
    given, end = port.get("port"), port.get("endPort")
    if given is not None:
        found += port_number_or_name(given, f"{path}.port")
    if end is not None:
        found += _end_port_errors(given, end, f"{path}.endPort")
    return found


def _end_port_errors(given: Any, end: int, path: str) -> list[FieldError]:
    if given is None:
        return [errors.invalid(path, end, "may not be specified when `port` is not specified")]
    if isinstance(given, str):
        return [errors.invalid(path, end, "may not be specified when `port` is non-numeric")]
    if end < given:
        return [errors.invalid(path, given, "must be greater than or equal to `port`")]
    return port_number(end, path)


def _peer_errors(peer: Obj, path: str) -> list[FieldError]:
    if not peer:
        return [errors.required(path, "must specify a peer")]
    found: list[FieldError] = []
    for field in ("podSelector", "namespaceSelector"):
        found += validate_label_selector(peer.get(field), f"{path}.{field}")
    if "ipBlock" in peer and len(peer) > 1:
        why = "may not specify both ipBlock and another peer"
        found.append(errors.forbidden(path, why))
    return found


NETWORK_POLICIES = declare(
    GROUP,
    "v1",
    "NetworkPolicy",
    "networkpolicies",
    Rules(default=_default_policy, validate=_validate_policy),
    short_names=("netpol",),
    columns=(
        NAME,
        string("Pod-Selector", lambda obj: format_selector(at(obj, "spec", "podSelector", default=None))),
        AGE,
    ),
)

RESOURCES = (INGRESS_CLASSES, INGRESSES, NETWORK_POLICIES)
