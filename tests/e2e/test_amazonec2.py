"""The driver amazonec2 against a real server of AWS's API: moto, over HTTP."""

from __future__ import annotations

import base64
import gzip
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import boto3
import msgspec
import pytest
from moto.server import ThreadedMotoServer

from remuda.providers.shared.drivers.amazonec2 import Amazonec2
from remuda.providers.shared.drivers.amazonec2.groups import INSIDE
from remuda.providers.shared.drivers.amazonec2.options import DEFAULT_GROUP
from remuda.providers.shared.drivers.amazonec2.request import instance, pairs
from remuda.providers.shared.drivers.spi import TAG_OWNER, TAG_UID, BadOptions, Context, DriverError, Server
from tests.lab.conformance import Conformance, Subject
from tests.lab.machines import CLUSTER, make
from tests.lab.up import CAPI, DRIVER_MACHINES, SECRETS, Up, allow_local_addresses

SECRET_KEY = "wJalrXUtnFEMI-very-secret-bPxRfiCYEXAMPLE"


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def client(moto: str) -> Any:
    return boto3.client(
        "ec2", endpoint_url=moto, region_name="us-east-1", aws_access_key_id="looks", aws_secret_access_key="on"
    )


@pytest.fixture(scope="module")
def image(client: Any) -> str:
    return str(client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"])


class Ec2(Subject):
    driver: ClassVar[type[Any]] = Amazonec2
    credentials: Mapping[str, str] = {"accessKey": "AKIAIOSFODNN7EXAMPLE", "secretKey": SECRET_KEY}
    secrets = (SECRET_KEY,)

    def __init__(self, directory: Path, endpoint: str, client: Any, image: str) -> None:
        super().__init__(directory)
        self.client = client
        self.options = {"ami": image, "endpoint": endpoint}
        self.bad_options = {
            "ami": {"endpoint": endpoint, "ami": "ami-00000000000000bad"},
            "tags": {**self.options, "tags": "one,two,three"},
            "openPort": {**self.options, "openPort": ["80-90"]},
            "rootSize": {**self.options, "rootSize": "large"},
            "keypairName": {**self.options, "keypairName": "mine"},
        }

    async def servers(self) -> Sequence[str]:
        return [one["InstanceId"] for one in self.instances() if one["State"]["Name"] != "terminated"]

    async def things(self) -> Sequence[str]:
        keys = [pair["KeyName"] for pair in self.client.describe_key_pairs()["KeyPairs"]]
        volumes = [volume["VolumeId"] for volume in self.client.describe_volumes()["Volumes"]]
        return [*await self.servers(), *keys, *volumes]

    async def received(self, server: Server) -> bytes:
        answer = self.client.describe_instance_attribute(InstanceId=server.id, Attribute="userData")
        return base64.b64decode(answer["UserData"]["Value"])

    def instances(self) -> list[dict[str, Any]]:
        found = self.client.describe_instances()["Reservations"]
        return [one for place in found for one in place["Instances"]]

    def clear(self) -> None:
        if ids := [one["InstanceId"] for one in self.instances() if one["State"]["Name"] != "terminated"]:
            self.client.terminate_instances(InstanceIds=ids)
        for pair in self.client.describe_key_pairs()["KeyPairs"]:
            self.client.delete_key_pair(KeyName=pair["KeyName"])


@pytest.fixture
def ec2(tmp_path: Path, moto: str, client: Any, image: str) -> Iterator[Ec2]:
    made = Ec2(tmp_path, moto, client, image)
    yield made
    made.clear()


class TestAmazonec2(Conformance):
    @pytest.fixture
    def subject(self, ec2: Ec2) -> Ec2:
        return ec2

    async def test_ssh_connects_with_recorded_key_and_host_keys(self, subject: Subject) -> None:
        """moto's instances run nothing: the key is what can be checked."""
        order = subject.order()
        server = await subject.act(order).create(order, b"")
        assert server.ssh is not None
        assert server.ssh.private_key.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
        assert isinstance(subject, Ec2)
        (instance,) = subject.instances()[-1:]
        assert instance["KeyName"] in await subject.things()


async def test_instance_matches_driver_options(ec2: Ec2) -> None:
    order = ec2.order(
        options={
            **ec2.options,
            "instanceType": "m5.large",
            "rootSize": "30",
            "zone": "b",
            "tags": "team,platform,cost,7",
            "openPort": ["8080", "5353/udp"],
            "securityGroup": ["mine"],
        }
    )
    server = await ec2.act(order).create(order, b"#cloud-config\n")
    (instance,) = [one for one in ec2.instances() if one["InstanceId"] == server.id]
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert tags == {
        **order.tags,
        "Name": order.name,
        "team": "platform",
        "cost": "7",
        "kubernetes.io/cluster/conformance": "owned",
    }
    assert instance["InstanceType"] == "m5.large"
    assert server.failure_domain == "us-east-1b"
    assert server.provider_id == f"aws:///us-east-1b/{server.id}"
    (volume,) = ec2.client.describe_volumes()["Volumes"]
    assert (volume["Size"], volume["VolumeType"]) == (30, "gp3")
    assert {tag["Key"] for tag in volume["Tags"]} >= {TAG_UID}
    (group,) = ec2.client.describe_security_groups(GroupNames=["mine"])["SecurityGroups"]
    opened = {(rule["FromPort"], rule["IpProtocol"]) for rule in group["IpPermissions"] if rule["IpRanges"]}
    assert opened == {(8080, "tcp"), (5353, "udp")}
    inside = {
        (rule["FromPort"], rule["ToPort"], rule["IpProtocol"])
        for rule in group["IpPermissions"]
        if [pair["GroupId"] for pair in rule["UserIdGroupPairs"]] == [group["GroupId"]]
    }
    assert inside == set(INSIDE)


async def test_default_security_group_allows_no_public_ingress(ec2: Ec2) -> None:
    order = ec2.order()
    await ec2.act(order).create(order, b"")
    (group,) = ec2.client.describe_security_groups(GroupNames=[DEFAULT_GROUP])["SecurityGroups"]
    assert [rule for rule in group["IpPermissions"] if rule["IpRanges"] or rule["Ipv6Ranges"]] == []


async def test_existing_security_group_keeps_its_rules_and_gains_missing_ones(ec2: Ec2) -> None:
    """6443 from one network does not let the members in; from everywhere does."""
    for name, source in (("narrow", "10.0.0.0/8"), ("wide", "0.0.0.0/0")):
        tag = {"ResourceType": "security-group", "Tags": [{"Key": TAG_OWNER, "Value": "somebody"}]}
        made = ec2.client.create_security_group(GroupName=name, Description=name, TagSpecifications=[tag])
        rule = {"IpProtocol": "tcp", "FromPort": 6443, "ToPort": 6443, "IpRanges": [{"CidrIp": source}]}
        ec2.client.authorize_security_group_ingress(GroupId=made["GroupId"], IpPermissions=[rule])
    order = ec2.order(options={**ec2.options, "securityGroup": ["narrow", "wide"]})
    await ec2.act(order).create(order, b"")
    found = ec2.client.describe_security_groups(GroupNames=["narrow", "wide"])["SecurityGroups"]
    rules = {
        group["GroupName"]: (rule["IpRanges"][0]["CidrIp"], len(rule["UserIdGroupPairs"]))
        for group in found
        for rule in group["IpPermissions"]
        if rule["FromPort"] == 6443
    }
    assert rules == {"narrow": ("10.0.0.0/8", 1), "wide": ("0.0.0.0/0", 0)}


async def test_missing_readonly_security_group_is_rejected(ec2: Ec2) -> None:
    order = ec2.order(options={**ec2.options, "securityGroup": ["absent"], "securityGroupReadonly": True})
    with pytest.raises(BadOptions, match="no security group absent"):
        await ec2.act(order).create(order, b"")
    assert await ec2.things() == []


async def test_zone_without_subnet_is_rejected(ec2: Ec2) -> None:
    order = ec2.order(options={**ec2.options, "zone": "z"})
    with pytest.raises(BadOptions, match="no subnet in us-east-1z"):
        await ec2.act(order).create(order, b"")


async def test_large_user_data_is_compressed_and_too_large_is_refused(ec2: Ec2) -> None:
    order = ec2.order()
    data = b"#cloud-config\n" + b"# the same words again and again\n" * 2000
    server = await ec2.act(order).create(order, data)
    assert gzip.decompress(await ec2.received(server)) == data
    with pytest.raises(BadOptions, match="the limit of AWS is 16384"):
        await ec2.act(order).create(order, secrets.token_bytes(40_000))


async def test_spot_option_requests_spot_instance(ec2: Ec2) -> None:
    order = ec2.order(options={**ec2.options, "requestSpotInstance": True, "spotPrice": "0.05"})
    acting = ec2.act(order)
    request = instance(acting.options, order, b"", subnet="subnet-1", group_ids=["sg-1"], key_name="key")
    assert request["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] == "0.05"
    server = await acting.create(order, b"")
    assert list(await ec2.servers()) == [server.id]


async def test_unreachable_api_error_contains_no_secrets(ec2: Ec2) -> None:
    order = ec2.order(options={**ec2.options, "endpoint": "http://127.0.0.1:1", "retries": 0})
    with pytest.raises(DriverError, match="cannot connect to AWS") as caught:
        await ec2.act(order).find(order)
    assert SECRET_KEY not in str(caught.value)


async def test_missing_credentials_error_names_aws_credentials(
    ec2: Ec2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    order = ec2.order()
    options = msgspec.convert(dict(order.options), Amazonec2.options_type)
    context = Context(credentials={}, record=ec2.record(order), say=print, directory=tmp_path)
    with pytest.raises(BadOptions, match="no AWS credentials"):
        await Amazonec2(options, context).find(order)


def test_job_killed_after_run_instance_creates_no_second_instance(
    ec2: Ec2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way: `remuda up`, a Machine, real Jobs; the first one dies right after AWS has answered."""
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    monkeypatch.setenv("REMUDA_CRASH_AT", "amazonec2.run-instance:after")
    monkeypatch.setenv("REMUDA_CRASH_ONCE", str(deaths))
    up = Up()
    try:
        allow_local_addresses(up, "amazonec2")
        keys = {f"amazonec2credentialConfig-{name}": value for name, value in ec2.credentials.items()}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "aws"}, "stringData": keys}
        assert up.http("POST", SECRETS, secret).code == 201
        up.apply(CLUSTER)
        make(up, "amazonec2", "mule", {**ec2.options, "common": {"cloudCredentialSecretName": "aws"}})
        machines = f"{DRIVER_MACHINES}/amazonec2machines"
        made = up.until(machines, "mule", lambda obj: (obj.get("spec") or {}).get("providerID"))
        assert [path.name for path in deaths.iterdir()] == ["amazonec2.run-instance:after"], "nobody was killed"
        (instance,) = [one for one in ec2.instances() if one["State"]["Name"] == "running"]
        assert made["spec"]["providerID"] == f"aws:///us-east-1a/{instance['InstanceId']}"
        answer = ec2.client.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
        assert base64.b64decode(answer["UserData"]["Value"]).startswith(b"#cloud-config")
        assert SECRET_KEY not in json.dumps([up.items(path) for path in (machines, "/api/v1/pods", "/api/v1/events")])
        assert SECRET_KEY not in up.log.read_text()
        assert up.remuda("leaks").returncode == 0
        forgotten = _start_beside(ec2, instance)
        found = up.remuda("leaks")
        assert (found.returncode, forgotten in found.stdout) == (1, True), found
        ec2.client.terminate_instances(InstanceIds=[forgotten])
        up.delete(f"{CAPI}/machines", "mule")
        ended = [one["State"]["Name"] for one in ec2.instances() if one["InstanceId"] == instance["InstanceId"]]
        assert ended == ["terminated"]
        assert ec2.client.describe_key_pairs()["KeyPairs"] == []
        assert up.remuda("leaks").returncode == 0
    finally:
        up.stop()


def _start_beside(ec2: Ec2, instance: dict[str, Any]) -> str:
    """An instance of ours that no machine owns any more."""
    tags = [tag for tag in instance["Tags"] if tag["Key"] != TAG_UID]
    answer = ec2.client.run_instances(
        ImageId=ec2.options["ami"],
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": [*tags, {"Key": TAG_UID, "Value": "forgotten"}]}],
    )
    return str(answer["Instances"][0]["InstanceId"])


@pytest.mark.parametrize("text", ["a", "a,b,c", ",b"])
def test_tags_without_key_value_pairs_are_rejected(text: str) -> None:
    with pytest.raises(BadOptions, match="key,value"):
        pairs(text)
