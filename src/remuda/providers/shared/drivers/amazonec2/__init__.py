"""`amazonec2`: instances in Amazon EC2.

An instance is found again by the tag with its machine's uid, and the call that starts it carries a token made of the
same uid, so that a Job killed between the call and the record starts no second one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from remuda.providers.shared.drivers.amazonec2 import groups
from remuda.providers.shared.drivers.amazonec2.errors import in_words, tolerated
from remuda.providers.shared.drivers.amazonec2.keys import KeyPair
from remuda.providers.shared.drivers.amazonec2.options import DEFAULT_GROUP, Amazonec2Options
from remuda.providers.shared.drivers.amazonec2.request import addresses, instance, numbers, packed, pairs, tags
from remuda.providers.shared.drivers.spi import (
    TAG_CLUSTER,
    TAG_MACHINE,
    TAG_OWNER,
    TAG_UID,
    BadOptions,
    Driver,
    DriverError,
    Order,
    Server,
    ServerState,
    SshAccess,
)
from remuda.providers.shared.manager_address import is_loopback
from remuda.runtime.steps import step

MAKE_GROUP = step("amazonec2.make-security-group", "creates a missing security group")
OPEN_PORTS = step("amazonec2.open-ports", "adds missing rules to a security group")
RUN = step("amazonec2.run-instance", "starts the instance of a machine")
TERMINATE = step("amazonec2.terminate-instance", "terminates the instances of a machine")

_LIVING = ("pending", "running", "stopping", "stopped", "shutting-down")
_STATES: Mapping[str, ServerState] = {
    "pending": "starting",
    "running": "running",
    "stopping": "stopped",
    "stopped": "stopped",
    "shutting-down": "failed",
    "terminated": "failed",
}
_OURS = (TAG_OWNER, TAG_CLUSTER, TAG_MACHINE, TAG_UID)
_LOOK_SECONDS = 3.0
_END_SECONDS = 300.0
_MOST_LIVES = 20
_LIFE = "life"  # in the record: number of this machine's instances so far

if find_spec("boto3") is None:
    raise ImportError("boto3 is not installed; install remuda[aws]")

# At level DEBUG, botocore logs whole requests, which contain user data and its tokens.
logging.getLogger("botocore").setLevel(logging.INFO)

T = TypeVar("T")
Json = dict[str, Any]


class Amazonec2(Driver[Amazonec2Options]):
    name: ClassVar[str] = "amazonec2"
    doc: ClassVar[str] = (
        "Instances in Amazon EC2, each with its own key pair; missing security groups are created. Needs credentials "
        "that may run, tag and terminate instances, and the extra `remuda[aws]`."
    )
    options_type: ClassVar[type[Amazonec2Options]] = Amazonec2Options
    credential_fields: ClassVar[tuple[str, ...]] = ("accessKey", "secretKey", "sessionToken")
    address_options: ClassVar[tuple[str, ...]] = ("endpoint",)

    _made: Any = None

    # the interface

    @classmethod
    def shares_loopback(cls, options: Mapping[str, Any]) -> bool:
        return is_loopback(urlsplit(str(options.get("endpoint") or "")).hostname or "")  # a stand-in for the cloud

    async def check(self, order: Order) -> None:
        options = self.options
        if not options.ami:
            raise BadOptions("ami: required")
        if bool(options.keypair_name) != bool(options.ssh_key_contents):
            raise BadOptions("set both keypairName and sshKeyContents, or neither")
        groups.parse_ports(options.open_port)
        numbers(options)
        pairs(options.tags)
        await self._ask("look up the image", self._client.describe_images, ImageIds=[options.ami])

    async def create(self, order: Order, user_data: bytes) -> Server:
        small = packed(user_data)
        found = await self._instance(order)
        if found is None:
            vpc, subnet = await self._place()
            group_ids = await self._groups(order, vpc)
            key_name = await self._key_name(order)
            self.context.say(f"starting a {self.options.instance_type} from {self.options.ami}")
            request = instance(self.options, order, small, subnet=subnet, group_ids=group_ids, key_name=key_name)
            found = await self._run(order, request)
            self.context.say(f"started {found['InstanceId']}")
        else:
            self.context.say(f"{found['InstanceId']} already exists")
        return self._server(found)

    async def find(self, order: Order) -> Server | None:
        found = await self._instance(order)
        return None if found is None else self._server(found)

    async def remove(self, order: Order) -> None:
        while instances := await self._instances("uid", TAG_UID, order.uid):
            ending = [one["InstanceId"] for one in instances if one["State"]["Name"] != "shutting-down"]
            if ending:
                self.context.say(f"terminating {', '.join(ending)}")
                async with TERMINATE:
                    await self._ask("terminate the instance", self._client.terminate_instances, InstanceIds=ending)
            await self._gone([one["InstanceId"] for one in instances])
        if not self.options.keypair_name:
            await self._key_pair(order).delete()

    async def owned(self, owner: str) -> Sequence[Server]:
        return [self._server(one) for one in await self._instances("owner", TAG_OWNER, owner)]

    # AWS

    @property
    def _client(self) -> Any:
        if self._made is None:
            import boto3
            from botocore.config import Config

            options, credentials = self.options, self.context.credentials
            retries, _ = numbers(options)
            session = boto3.session.Session(
                aws_access_key_id=credentials.get("accessKey") or options.access_key or None,
                aws_secret_access_key=credentials.get("secretKey") or options.secret_key or None,
                aws_session_token=credentials.get("sessionToken") or options.session_token or None,
                region_name=options.region,
            )
            config = Config(retries={"total_max_attempts": retries + 1, "mode": "standard"}, connect_timeout=10)
            self._made = session.client("ec2", endpoint_url=options.endpoint or None, config=config)
        return self._made

    async def _ask(self, what: str, call: Callable[..., T], **arguments: Any) -> T:
        with in_words(what):
            return await asyncio.to_thread(call, **arguments)

    async def _instance(self, order: Order) -> Json | None:
        found = await self._instances("uid", TAG_UID, order.uid)
        if len(found) > 1:
            ids = ", ".join(one["InstanceId"] for one in found)
            raise DriverError(f"several instances belong to this machine: {ids}. Terminate all but one")
        return found[0] if found else None

    async def _instances(self, what: str, tag: str, value: str) -> list[Json]:
        filters = [{"Name": f"tag:{tag}", "Values": [value]}, {"Name": "instance-state-name", "Values": list(_LIVING)}]

        def read() -> list[Json]:
            pages = self._client.get_paginator("describe_instances").paginate(Filters=filters)
            return [one for page in pages for place in page["Reservations"] for one in place["Instances"]]

        return await self._ask(f"look for instances by their {what}", read)

    async def _place(self) -> tuple[str, str]:
        """Return the VPC and the subnet."""
        options = self.options
        if options.subnet_id:
            answer = await self._ask("look up the subnet", self._client.describe_subnets, SubnetIds=[options.subnet_id])
            return answer["Subnets"][0]["VpcId"], options.subnet_id
        vpc = options.vpc_id or await self._default_vpc()
        filters = [
            {"Name": "vpc-id", "Values": [vpc]},
            {"Name": "availability-zone", "Values": [f"{options.region}{options.zone}"]},
        ]
        subnets = (await self._ask("look for a subnet", self._client.describe_subnets, Filters=filters))["Subnets"]
        if not subnets:
            raise BadOptions(
                f"{vpc} has no subnet in {options.region}{options.zone}: choose another zone, or a subnetId"
            )
        chosen = min(subnets, key=lambda subnet: (not subnet.get("DefaultForAz"), subnet["SubnetId"]))
        return vpc, chosen["SubnetId"]

    async def _default_vpc(self) -> str:
        filters = [{"Name": "is-default", "Values": ["true"]}]
        vpcs = (await self._ask("look for the default VPC", self._client.describe_vpcs, Filters=filters))["Vpcs"]
        if not vpcs:
            raise BadOptions(f"{self.options.region} has no default VPC: give a vpcId or a subnetId")
        return str(vpcs[0]["VpcId"])

    async def _groups(self, order: Order, vpc: str) -> list[str]:
        names = list(dict.fromkeys(self.options.security_group)) or [DEFAULT_GROUP]
        found = await self._ask("look for security groups", groups.find, client=self._client, vpc=vpc, names=names)
        absent = [name for name in names if name not in found]
        if self.options.security_group_readonly:
            if absent:
                raise BadOptions(f"{vpc} has no security group {', '.join(absent)}, and securityGroupReadonly is set")
            return [found[name]["GroupId"] for name in names]
        for name in absent:
            async with MAKE_GROUP:
                await self._ask(
                    "create a security group",
                    groups.make,
                    client=self._client,
                    vpc=vpc,
                    name=name,
                    tags=tags({TAG_OWNER: order.owner}),
                )
        if absent:
            found = await self._ask("look for security groups", groups.find, client=self._client, vpc=vpc, names=names)
        await self._open_ports(found)
        return [found[name]["GroupId"] for name in names]

    async def _open_ports(self, found: Mapping[str, Json]) -> None:
        """Open missing ports of the security groups we manage: those with our tag, and the default group."""
        opened = groups.parse_ports(self.options.open_port)
        for name, group in found.items():
            ours = name == DEFAULT_GROUP or any(tag["Key"] == TAG_OWNER for tag in group.get("Tags", ()))
            if ours and groups.missing(group, opened):
                async with OPEN_PORTS:
                    await self._ask(
                        "open ports of the security group",
                        groups.open_ports,
                        client=self._client,
                        group=group,
                        opened=opened,
                    )

    # the instance

    async def _key_name(self, order: Order) -> str:
        if self.options.keypair_name:
            return self.options.keypair_name
        pair = self._key_pair(order)
        await pair.ensure()
        return pair.name

    def _key_pair(self, order: Order) -> KeyPair:
        return KeyPair(order, self.context.record, self._client, self._ask)

    async def _run(self, order: Order, request: Json) -> Json:
        """Start the instance. AWS remembers a token for longer than its instance lives, so each token of a terminated
        instance is followed by the next one."""
        for life in range(int(self.context.record.value.get(_LIFE, 0)), _MOST_LIVES):
            token = hashlib.sha256(f"{order.uid} {life}".encode()).hexdigest()

            def run(token: str = token) -> Json | None:
                with tolerated("IdempotentInstanceTerminated"):
                    started: Json = self._client.run_instances(**request, ClientToken=token)["Instances"][0]
                    return started if started["State"]["Name"] in ("pending", "running") else None
                return None

            async with RUN:
                found = await self._ask("start the instance", run)
            if found is not None:
                return found
            # Store the count before the next request: a Job that is restarted must not ask with a spent token again.
            await self.context.record.save({**self.context.record.value, _LIFE: life + 1})
        raise DriverError(f"AWS has terminated {_MOST_LIVES} instances of this machine: check the reason in AWS")

    async def _gone(self, ids: list[str]) -> None:
        """Wait until instances are terminated: until then they still hold addresses and volumes."""
        for _ in range(int(_END_SECONDS / _LOOK_SECONDS)):
            filters = [{"Name": "instance-id", "Values": ids}, {"Name": "instance-state-name", "Values": list(_LIVING)}]
            answer = await self._ask(
                "check whether the instance is terminated", self._client.describe_instances, Filters=filters
            )
            if not answer["Reservations"]:
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise DriverError(f"{', '.join(ids)} not terminated after {_END_SECONDS:.0f} s")

    def _server(self, found: Json) -> Server:
        zone = found.get("Placement", {}).get("AvailabilityZone", "")
        options = self.options
        private_key = options.ssh_key_contents or self.context.record.private_key
        return Server(
            id=found["InstanceId"],
            name=next((tag["Value"] for tag in found.get("Tags", ()) if tag["Key"] == "Name"), ""),
            state=_STATES.get(found["State"]["Name"], "failed"),
            provider_id=f"aws:///{zone}/{found['InstanceId']}",
            addresses=addresses(found, private_first=options.use_private_address or options.private_address_only),
            failure_domain=zone,
            ssh=SshAccess(user=options.ssh_user, private_key=private_key),
            tags={tag["Key"]: tag["Value"] for tag in found.get("Tags", ()) if tag["Key"] in _OURS},
        )
