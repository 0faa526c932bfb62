"""Checks a plan against the contract of its distribution: whether the program would start with it, and stay healthy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from remuda.providers.controlplane.render.plan import Plan
from remuda.providers.shared import distros
from remuda.providers.shared.distros import Distro, Version
from remuda.providers.shared.distros.contract import listed, refusals

_KINDS = {"string": str, "boolean": bool, "number": int, "list": (list, str)}


def problems(plan: Plan) -> list[str]:
    """Return what is wrong with the plan of a host that is installed; empty if the distribution takes it."""
    environment = plan.environment()
    version = distros.parse_version(environment["REMUDA_VERSION"])
    distro, role, data = distros.of(version), environment["REMUDA_ROLE"], environment["REMUDA_DATA_DIR"]
    file = plan.file(f"{distro.config_dir}/config.yaml.d/50-rancher.yaml")
    values = json.loads(file.content) if file is not None else {}
    return [
        *_config(distro, version, role == "server", values),
        *_joining(plan, distro, values),
        *_files(plan, distro, version, data),
        *_unit(plan, distro, version, role),
        *_probes(plan, distro, version, data, values),
        *_unit_probe(plan, distro, role),
    ]


def retirement_problems(plan: Plan, distro: Distro, version: Version, data: str) -> list[str]:
    """Return what is wrong with the last plan of a host."""
    environment = plan.environment("retire")
    wanted = {
        variable
        for script in distro.contract.scripts
        if script.holds(version) and script.name.endswith("-killall.sh")
        for variable in script.variables
    }
    return [f"retire: {name} is not {data}" for name in sorted(wanted) if environment.get(name) != data]


def _config(distro: Distro, version: Version, server: bool, values: Mapping[str, Any]) -> Iterator[str]:
    known = distro.arguments(server, version)
    for key, value in values.items():
        if key not in known:
            yield f"config: {distro.name} {version.text} has no key {key}"
        elif not isinstance(value, _KINDS[known[key]]):
            yield f"config: {key} is no {known[key]}"
    for refusal in refusals(distro.contract, version, values):
        yield f"config: {refusal.key} {refusal.words}"


def _joining(plan: Plan, distro: Distro, values: Mapping[str, Any]) -> Iterator[str]:
    file = plan.file(f"{distro.config_dir}/remuda-servers")
    servers = file.content.decode().split() if file is not None else []
    if servers != ["init"]:
        (port,) = {port.number for port in distro.contract.ports if port.name == "supervisor"}
        yield from (f"{url} is not the supervisor's port {port}" for url in servers if urlsplit(url).port != port)
    if values.get("disable-etcd") and (not servers or servers == ["init"]):
        yield "a server without etcd has nobody to join by: it would begin a cluster of its own"


def _files(plan: Plan, distro: Distro, version: Version, data: str) -> Iterator[str]:
    """An agent resets owner and mode of each file of a plan."""
    paths = {file.path for file in plan.files}
    for owned in distro.contract.files:
        if owned.holds(version) and f"{data}/{owned.path}" in paths:
            yield f"file {data}/{owned.path}: {distro.name} gives it to {owned.owner}, and the plan takes it back"
    for unit in distro.contract.units:
        yield from (f"file {path} is not ours" for path in unit.released if path in paths)


def _unit(plan: Plan, distro: Distro, version: Version, role: str) -> Iterator[str]:
    wanted = {unit.name for unit in distro.contract.units if unit.role == role and unit.holds(version)}
    if plan.environment()["REMUDA_UNIT"] not in wanted:
        yield f"unit {plan.environment()['REMUDA_UNIT']} is not one of {wanted}"


def _probes(plan: Plan, distro: Distro, version: Version, data: str, values: Mapping[str, Any]) -> Iterator[str]:
    known = {health.component: health for health in distro.contract.health if health.holds(version)}
    fixed = {port.name: port.fixed for port in distro.contract.ports}
    for name, probe in plan.probes.items():
        if name not in known:
            yield f"probe {name}: nothing is known of it"
            continue
        asked, right = urlsplit(probe.url), urlsplit(known[name].url)
        ports = {right.port} if fixed.get(name, True) else {right.port, _secure_port(values, name)}
        if (asked.scheme, asked.path) != (right.scheme, right.path) or asked.port not in ports:
            yield f"probe {name}: {probe.url} is not {known[name].url}"
        if known[name].trusts and probe.authority not in (f"{data}/{known[name].trusts}", _active_file(plan, name)):
            yield f"probe {name}: trusts {probe.authority}"


def _unit_probe(plan: Plan, distro: Distro, role: str) -> Iterator[str]:
    """Where components outlive the unit of a server, one probe fails until the unit is active."""
    unit = plan.environment()["REMUDA_UNIT"]
    if role != "server" or not distro.components_outlive_unit:
        yield from (f"probe {unit}: nothing is left that it could tell apart" for name in plan.probes if name == unit)
    elif unit not in plan.probes or plan.probes[unit].authority != _active_file(plan, unit):
        yield f"no probe tells the components of {unit} from those of the process before"


def _active_file(plan: Plan, unit: str) -> str:
    """Return the file that exists while the unit is active; for other probes nothing that any of them trusts."""
    environment = plan.environment()
    return environment.get("REMUDA_ACTIVE_FILE") or "?" if unit == environment["REMUDA_UNIT"] else "?"


def _secure_port(values: Mapping[str, Any], component: str) -> int | None:
    for item in listed(values.get(f"{component}-arg")):
        name, _, value = item.partition("=")
        if name == "secure-port":
            return int(value)
    return None
