"""Built-in facts about drivers that are programs, beyond the flags they report: which options are credentials, which
are secrets, which hold the content of a file that the program wants as a path, and which say where to connect.

A NodeDriver declares these facts in annotations, as Rancher's do. This module declares them for the common drivers.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

PUBLIC, PRIVATE = "publicCredentialFields", "privateCredentialFields"
PASSWORDS = "passwordFields"
FILES = "nodedriver.cattle.io/file-to-field-aliases"


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    passwords: tuple[str, ...] = ()
    files: Mapping[str, str] = {}  # option → the program's option that wants a path
    addresses: tuple[str, ...] = ()  # options that say where to connect

    @property
    def credentials(self) -> tuple[str, ...]:
        return (*self.public, *self.private)

    @property
    def secrets(self) -> tuple[str, ...]:
        return (*self.private, *self.passwords)


_KNOWN: Mapping[str, DriverFacts] = {
    "amazonec2": DriverFacts(
        public=("accessKey",),
        private=("secretKey", "sessionToken"),
        files={"sshKeyContents": "sshKeypath", "userdata": "userdata"},
        addresses=("endpoint",),
    ),
    "azure": DriverFacts(
        public=("clientId", "subscriptionId", "tenantId", "environment"),
        private=("clientSecret",),
        files={"customData": "customData"},
    ),
    "digitalocean": DriverFacts(
        private=("accessToken",), files={"sshKeyContents": "sshKeyPath", "userdata": "userdata"}
    ),
    "exoscale": DriverFacts(public=("apiKey",), private=("apiSecretKey",), files={"userdata": "userdata"}),
    "google": DriverFacts(
        private=("authEncodedJson",), files={"authEncodedJson": "authEncodedJson", "userdata": "userdata"}
    ),
    "harvester": DriverFacts(public=("clusterType", "clusterId"), private=("kubeconfigContent",)),
    "linode": DriverFacts(private=("token",), passwords=("rootPass",)),
    "nutanix": DriverFacts(public=("endpoint", "username", "port"), private=("password",), addresses=("endpoint",)),
    "oci": DriverFacts(public=("tenancyId", "userId", "fingerprint"), private=("privateKeyContents",)),
    "openstack": DriverFacts(
        private=("password",),
        files={"cacert": "cacert", "privateKeyFile": "privateKeyFile", "userDataFile": "userDataFile"},
        addresses=("authUrl",),
    ),
    "vmwarevsphere": DriverFacts(
        public=("username", "vcenter", "vcenterPort"),
        private=("password",),
        files={"cloudConfig": "cloudConfig"},
        addresses=("vcenter",),
    ),
}


def drivers() -> list[str]:
    """Return the names of the drivers with built-in facts."""
    return list(_KNOWN)


def facts(driver: str, annotations: Mapping[str, str]) -> DriverFacts:
    """Return the facts about a driver; annotations override the built-in ones."""
    known = _KNOWN.get(driver, DriverFacts())
    return DriverFacts(
        public=_listed(annotations, PUBLIC, known.public),
        private=_listed(annotations, PRIVATE, known.private),
        passwords=_listed(annotations, PASSWORDS, known.passwords),
        files=_paired(annotations.get(FILES)) if FILES in annotations else known.files,
        addresses=known.addresses,
    )


def _listed(annotations: Mapping[str, str], name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    said = annotations.get(name)
    return known if said is None else tuple(part.strip() for part in said.split(",") if part.strip())


def _paired(said: str | None) -> dict[str, str]:
    pairs = (part.partition(":") for part in (said or "").split(","))
    return {ours.strip(): theirs.strip() for ours, colon, theirs in pairs if colon and ours.strip() and theirs.strip()}
