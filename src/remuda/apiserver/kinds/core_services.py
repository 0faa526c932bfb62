"""Services and Endpoints.

The engine has no network: it allocates no cluster IPs and no node ports. A Service keeps the addresses that a user
gives it (or "None"), and otherwise has none.
"""

from __future__ import annotations

from typing import Any

from remuda.apiserver.kinds.columns import AGE, NAME, at, format_labels, some_of, string, value
from remuda.apiserver.kinds.declare import Rules, declare, one_of
from remuda.apiserver.kinds.pod_spec import PROTOCOLS, port_number, port_number_or_name
from remuda.apiserver.resource import ALL_VERBS, Obj
from remuda.kube import errors, names
from remuda.kube.errors import FieldError

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITY_SECONDS = 10800
_ADDRESS_WIDTH = 16  # width at which a load balancer's addresses are cut off


def _default_service(service: Obj) -> None:
    spec = service["spec"]
    if spec["sessionAffinity"] == "ClientIP":
        if at(spec, "sessionAffinityConfig", "clientIP", "timeoutSeconds", default=None) is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    elif spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    for port in spec.get("ports") or ():
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    type_ = spec["type"]
    if type_ in ("NodePort", "LoadBalancer") or (type_ == "ClusterIP" and spec.get("externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if type_ != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if type_ == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


def _create_service(service: Obj) -> None:
    service["status"] = {"loadBalancer": {}}
    spec = service["spec"]
    _join_addresses(spec)
    _default_families(spec)


def _update_service(new: Obj, old: Obj) -> None:
    """Keep the fields that the server once filled in if a client sends the object without them."""
    spec, before = new["spec"], old["spec"]
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP") and not spec.get("clusterIPs") and before.get("clusterIPs"):
        spec["clusterIP"], spec["clusterIPs"] = before["clusterIP"], before["clusterIPs"]
    for field in ("ipFamilies", "ipFamilyPolicy"):
        if before.get(field) is not None:
            spec.setdefault(field, before[field])
    _join_addresses(spec)
    _default_families(spec)


def _default_families(spec: Obj) -> None:
    """Set one IP family, except for a headless service without a selector, whose endpoints may have either family."""
    if spec["type"] == "ExternalName":
        return
    any_family = spec.get("clusterIP") == "None" and not spec.get("selector")
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if any_family else "SingleStack")
    families = spec.get("ipFamilies") or ["IPv4"]
    if any_family and len(families) == 1 and spec["ipFamilyPolicy"] != "SingleStack":
        families = [*families, "IPv6" if families[0] == "IPv4" else "IPv4"]
    spec["ipFamilies"] = families


def _join_addresses(spec: Obj) -> None:
    """Make clusterIP the first of clusterIPs, whichever of the two was set."""
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    elif spec.get("clusterIPs") and not spec.get("clusterIP"):
        spec["clusterIP"] = spec["clusterIPs"][0]


def _validate_service(service: Obj) -> list[FieldError]:
    spec = service["spec"]
    headless = spec.get("clusterIP") == "None"
    ports = spec.get("ports") or []
    found = []
    if not ports and not headless and spec["type"] != "ExternalName":
        found.append(errors.required("spec.ports"))
    if headless and spec["type"] in ("LoadBalancer", "NodePort"):
        why = f"may not be set to 'None' for {spec['type']} services"
        found.append(errors.invalid("spec.clusterIPs[0]", "None", why))
    if spec["type"] == "ExternalName":
        found += _external_name_errors(spec)
    found += _port_errors(spec, ports)
    found += names.validate_labels(spec.get("selector") or {}, "spec.selector")
    found += one_of(spec["sessionAffinity"], "spec.sessionAffinity", ("ClientIP", "None"))
    found += one_of(spec["type"], "spec.type", _TYPES)
    if spec.get("clusterIP") and spec.get("clusterIPs") and spec["clusterIPs"][0] != spec["clusterIP"]:
        why = "first value must match `clusterIP` when specified"
        found.append(errors.invalid("spec.clusterIPs", spec["clusterIPs"], why))
    return found


def _external_name_errors(spec: Obj) -> list[FieldError]:
    why = "may not be set for ExternalName services"
    found = [errors.forbidden(f"spec.{f}", why) for f in ("clusterIPs", "ipFamilies", "ipFamilyPolicy") if spec.get(f)]
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        return [*found, errors.required("spec.externalName")]
    return found + [errors.invalid("spec.externalName", name, why) for why in names.dns1123_subdomain(name)]


def _port_errors(spec: Obj, ports: list[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    used_names: set[str] = set()
    used: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        found += _one_port_errors(port, path, needs_name=len(ports) > 1, used=used_names)
        if spec["type"] == "ClusterIP" and port.get("nodePort"):
            found.append(errors.forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'"))
        key = (port.get("protocol"), port.get("port"))
        if key in used:
            shown = {"protocol": key[0], "port": key[1]}
            found.append(errors.duplicate(path, shown))
        used.add(key)
    return found


def _one_port_errors(port: Obj, path: str, *, needs_name: bool, used: set[str]) -> list[FieldError]:
    found: list[FieldError] = []
    name = port.get("name")
    if name:
        found += [errors.invalid(f"{path}.name", name, why) for why in names.dns1123_label(name)]
        if name in used:
            found.append(errors.duplicate(f"{path}.name", name))
        used.add(name)
    elif needs_name:
        found.append(errors.required(f"{path}.name"))
    found += port_number(port.get("port") or 0, f"{path}.port")
    found += one_of(port.get("protocol"), f"{path}.protocol", PROTOCOLS)
    found += port_number_or_name(port.get("targetPort", 0), f"{path}.targetPort")
    if app := port.get("appProtocol"):
        found += [errors.invalid(f"{path}.appProtocol", app, why) for why in names.qualified_name(app)]
    return found


def _validate_service_update(new: Obj, old: Obj) -> list[FieldError]:
    if "ExternalName" in (new["spec"]["type"], old["spec"]["type"]):
        return []
    given, before = new["spec"].get("clusterIPs"), old["spec"].get("clusterIPs")
    if before and given and given[0] != before[0]:
        return [errors.invalid("spec.clusterIPs[0]", given, "may not change once set")]
    return []


def _cluster_ip(service: Obj) -> str:
    addresses = at(service, "spec", "clusterIPs", default=())
    return str(addresses[0]) if addresses else "<none>"


def _external_ip(service: Obj) -> str:
    spec = service.get("spec") or {}
    external = spec.get("externalIPs") or []
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or "<none>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case "LoadBalancer":
            ingress = at(service, "status", "loadBalancer", "ingress", default=())
            shown = balancer_addresses(ingress)
            return ",".join([*filter(None, [shown]), *external]) or "<pending>"
    return "<unknown>"


def balancer_addresses(ingress: Any) -> str:
    found = sorted({point.get("ip") or point.get("hostname") or "" for point in ingress} - {""})
    text = ",".join(found)
    return text if len(text) <= _ADDRESS_WIDTH else text[: _ADDRESS_WIDTH - 3] + "..."


def _ports(service: Obj) -> str:
    def one(port: Obj) -> str:
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        return f"{port.get('port')}{node_port}/{port.get('protocol')}"

    return ",".join(map(one, at(service, "spec", "ports", default=()))) or "<none>"


SERVICES = declare(
    "",
    "v1",
    "Service",
    "services",
    Rules(
        default=_default_service,
        create=_create_service,
        update=_update_service,
        validate=_validate_service,
        validate_update=_validate_service_update,
        validate_name=names.label_name,
    ),
    short_names=("svc",),
    categories=("all",),
    verbs=ALL_VERBS,
    has_status=True,
    has_generation=False,
    returns_deleted=True,
    allow_create_on_update=True,
    selectable={"spec.clusterIP": ("spec", "clusterIP"), "spec.type": ("spec", "type")},
    columns=(
        NAME,
        string("Type", value("spec", "type")),
        string("Cluster-IP", _cluster_ip),
        string("External-IP", _external_ip),
        string("Port(s)", _ports),
        AGE,
        string("Selector", lambda obj: format_labels(at(obj, "spec", "selector", default=None)), wide=True),
    ),
)


def _validate_endpoints(endpoints: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for index, subset in enumerate(endpoints.get("subsets") or ()):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            found.append(errors.required(path, "must specify `addresses` or `notReadyAddresses`"))
        for at_, port in enumerate(subset.get("ports") or ()):
            found += port_number(port.get("port") or 0, f"{path}.ports[{at_}].port")
            found += one_of(port.get("protocol"), f"{path}.ports[{at_}].protocol", PROTOCOLS)
    return found


def _endpoint_list(endpoints: Obj) -> str:
    def listed() -> Any:
        for subset in endpoints.get("subsets") or ():
            addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
            ports = subset.get("ports") or ()
            yield from addresses if not ports else (f"{ip}:{port.get('port')}" for port in ports for ip in addresses)

    return some_of(listed()) if endpoints.get("subsets") else "<none>"


ENDPOINTS = declare(
    "",
    "v1",
    "Endpoints",
    "endpoints",
    Rules(validate=_validate_endpoints),
    short_names=("ep",),
    has_generation=False,
    allow_create_on_update=True,
    deprecation_warning="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    columns=(NAME, string("Endpoints", _endpoint_list), AGE),
)
