"""Security groups: found by name in the VPC, or made, with the rules that nodes of a cluster need among themselves.

They are shared by all machines that name them and stay when those are gone, as people expect of a group they named.
Only members of a group reach each other, until the user opens a port: hosts call the manager, and never the other way
round. Rules are added and never removed, so a group of an earlier version keeps what it has opened to the world.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from remuda.providers.shared.drivers.amazonec2.errors import tolerated
from remuda.providers.shared.drivers.spi import BadOptions

_ANYWHERE = "0.0.0.0/0"
_ANYWHERE_V6 = "::/0"

Permission = dict[str, Any]


class Port(NamedTuple):
    first: int
    last: int
    protocol: str = "tcp"


# Between members of the group: the API, where nodes join, etcd, the networks of Pods, kubelets, node ports.
INSIDE = (
    Port(6443, 6443),
    Port(9345, 9345),
    Port(2379, 2381),
    Port(8472, 8472, "udp"),
    Port(4789, 4789, "udp"),
    Port(51820, 51821, "udp"),
    Port(10250, 10252),
    Port(10256, 10256),
    Port(179, 179),
    Port(5473, 5473),
    Port(9098, 9099),
    Port(9796, 9796),
    Port(30000, 32767),
    Port(30000, 32767, "udp"),
)


def parse_ports(texts: Sequence[str]) -> list[Port]:
    """Raises BadOptions."""
    found = []
    for text in texts:
        number, _, protocol = text.partition("/")
        if not number.isdigit() or not 0 < int(number) < 65536 or (protocol or "tcp") not in ("tcp", "udp"):
            raise BadOptions(f"openPort: {text!r} is not a port; write 8080, or 8080/udp")
        found.append(Port(int(number), int(number), protocol or "tcp"))
    return found


def wanted(group: str, opened: Sequence[Port]) -> list[Permission]:
    """Return the rules of a group; `opened` are the ports that are open to everyone."""
    anybody = {"IpRanges": [{"CidrIp": _ANYWHERE}], "Ipv6Ranges": [{"CidrIpv6": _ANYWHERE_V6}]}
    found = [_permission(port) | anybody for port in opened]
    found += [_permission(port) | {"UserIdGroupPairs": [{"GroupId": group}]} for port in INSIDE if port not in opened]
    return found


def _permission(port: Port) -> Permission:
    return {"IpProtocol": port.protocol, "FromPort": port.first, "ToPort": port.last}


def missing(group: dict[str, Any], opened: Sequence[Port]) -> list[Permission]:
    """Return the rules that a group lacks; rules of other owners stay."""
    present = [(_ports(one), _sources(one)) for one in group.get("IpPermissions", ())]
    return [
        one
        for one in wanted(group["GroupId"], opened)
        if not any(ports == _ports(one) and _covers(sources, _sources(one)) for ports, sources in present)
    ]


def _ports(permission: Permission) -> tuple[Any, ...]:
    return permission.get("IpProtocol"), permission.get("FromPort"), permission.get("ToPort")


def _sources(permission: Permission) -> set[str]:
    """Addresses and groups that a rule is for. AWS joins rules for the same ports into one."""
    found = {one["CidrIp"] for one in permission.get("IpRanges", ())}
    found |= {one["GroupId"] for one in permission.get("UserIdGroupPairs", ())}
    return found


def _covers(present: set[str], wanted: set[str]) -> bool:
    """Return whether a rule covers another. IPv4 decides: a group that is opened only for IPv4 stays so."""
    return _ANYWHERE in present or wanted <= present


def find(client: Any, vpc: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the security groups that exist, by name."""
    answer = client.describe_security_groups(
        Filters=[{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": list(names)}]
    )
    return {group["GroupName"]: group for group in answer["SecurityGroups"]}


def make(client: Any, vpc: str, name: str, tags: list[dict[str, str]]) -> None:
    """Create a security group, unless another client has created it in the meantime."""
    with tolerated("InvalidGroup.Duplicate"):
        client.create_security_group(
            GroupName=name,
            VpcId=vpc,
            Description="Nodes of clusters managed by Remuda",
            TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}],
        )


def open_ports(client: Any, group: dict[str, Any], opened: Sequence[Port]) -> None:
    """Open ports one by one, so that a rule that was added meanwhile does not make the others fail."""
    for permission in missing(group, opened):
        with tolerated("InvalidPermission.Duplicate"):
            client.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[permission])
