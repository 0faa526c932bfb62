"""docs/own-servers.md, typed line by line on a terminal, without root: from two servers to a Pod on real k3s, and back.

The commands are those of the page. Only addresses differ, and the channels: the release is one of this machine, on an
HTTPS server whose certificate authority the user trusts. The servers are hosts in systemd-nspawn, prepared for k3s by
their owner as examples/k3s-nspawn.yaml does it. They reach no registry: the images of the release have the Pod's, too.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncssh
import pytest
import yaml

from tests.e2e_k3s import images
from tests.e2e_k3s.k3s_cluster import FILES, PLACE, ROOT, VERSION, needed, require_packages
from tests.e2e_k3s.k3s_cluster import room_for_watches as room
from tests.lab.hosts import Host, Network, open_network
from tests.lab.newcomer import Newcomer, Typist
from tests.lab.page_commands import commands, substituted
from tests.lab.peers import require_peer
from tests.lab.release_server import ReleaseServer

pytestmark = pytest.mark.timeout(3600)

PAGE = ROOT / "docs/own-servers.md"
IMAGES = (images.PAUSE, "docker.io/library/nginx:1.29")
_AGENT = ("snapshotter", "kube-proxy-arg", "pause-image")  # keys that agents have, too


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    require_packages()
    with open_network(tmp_path_factory.mktemp("network")) as found, room():
        yield found


@pytest.fixture(scope="module")
def releases(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReleaseServer]:
    binary, program = require_peer("k3s", "k3s-herd")
    folder = tmp_path_factory.mktemp("release")
    archive = images.pack(program, folder / "k3s-airgap-images-amd64.tar.zst", IMAGES)
    server = ReleaseServer(folder / "served", network.address)
    server.release(VERSION, "amd64", **{"k3s": binary, archive.name: archive})
    with server.running():
        yield server


class Owner:
    """A newcomer with two servers and a key for them."""

    def __init__(self, network: Network, releases: ReleaseServer, newcomer: Newcomer) -> None:
        self.network = network
        self.newcomer = newcomer
        key = asyncssh.generate_private_key("ssh-ed25519")
        self.private_key = key.export_private_key().decode()
        self.public_key = key.export_public_key().decode().strip()
        newcomer.write(".ssh/id_ed25519", self.private_key)
        channels = newcomer.write("channels.yaml", releases.channels(VERSION))
        authority = newcomer.write("releases.pem", releases.ca.read_text())
        self.environment = {
            "PATH": f"{newcomer.home}/.remuda/bin:{newcomer.environment['PATH']}",
            "REMUDA_CHANNELS": str(channels),
            "SSL_CERT_FILE": str(authority),
            "NO_PROXY": network.address,
        }

    async def server(self, name: str, *, server: bool) -> Host:
        """Set up a server, as its owner prepares it for k3s."""
        host = await self.network.host(name, binds=PLACE["binds"], system_calls=PLACE["systemCalls"])
        config = needed()
        settings = {
            key: value for key, value in config["machineGlobalConfig"].items() if value and (server or key in _AGENT)
        }
        files = {"/etc/rancher/k3s/config.yaml.d/10-owner.yaml": yaml.safe_dump(settings)}
        for source in config["machineSelectorFiles"][0]["fileSources"]:
            items = source["configMap"]["items"]
            files |= {item["path"]: FILES["data"][item["key"]] for item in items}
        for path, content in files.items():
            await host.run(f"mkdir -p {shlex.quote(str(Path(path).parent))} && cat >{shlex.quote(path)}", stdin=content)
        await host.run("cat >>~/.ssh/authorized_keys", stdin=f"{self.public_key}\n")
        return host

    def type_page(self, addresses: Mapping[str, str]) -> dict[str, str]:
        """Type the commands of the page with these addresses, and return what each one shows."""
        with self.newcomer.shell(self.environment) as shell:
            typist = Typist(shell, PAGE.name)
            return {line: typist.type(substituted(line, addresses)) for line in commands(PAGE.read_text())}


@pytest.fixture
def owner(network: Network, releases: ReleaseServer) -> Iterator[Owner]:
    newcomer = Newcomer()
    try:
        assert newcomer.has("kubectl"), "build it with interop/build kubectl"
        newcomer.install()
        yield Owner(network, releases, newcomer)
    finally:
        newcomer.leave()


def test_page_leads_from_two_servers_to_a_pod(owner: Owner, capsys: pytest.CaptureFixture[str]) -> None:
    async def hosts() -> list[Host]:
        return list(await asyncio.gather(owner.server("first", server=True), owner.server("second", server=False)))

    first, second = asyncio.run(hosts())
    addresses = {
        "192.0.2.1": owner.network.address,
        "192.0.2.10": first.address,
        "192.0.2.11": second.address,
    }
    printed = owner.type_page(addresses)

    def output(beginning: str) -> str:
        (found,) = [text for line, text in printed.items() if line.startswith(beginning)]
        return found

    said = asyncio.run(first.run("k3s --version"))
    with capsys.disabled():
        print(f"\n{said}", end="")
    assert f"k3s version {VERSION}" in said
    assert "k3s: downloading" in output("remuda artefacts add")
    created = " ".join(output("remuda create cluster").split())  # wrapped at the terminal's width
    assert f"Cluster ranch created: {VERSION}, 1 server, 1 worker, driver existing" in created
    nodes = output("kubectl --kubeconfig ranch.kubeconfig get nodes")
    assert [line.split()[4] for line in nodes.splitlines() if " Ready " in line] == [VERSION] * 2
    pods = output("kubectl --kubeconfig ranch.kubeconfig get pod").splitlines()
    (pod,) = [line.split() for line in pods if line.startswith("hello ")]
    assert (pod[2], pod[6]) == ("Running", "second")
    assert not [line for line, text in printed.items() if owner.private_key.splitlines()[1] in text]
    assert (
        asyncio.run(second.run("ls /etc/remuda/claim.json", check=False)).strip().endswith("No such file or directory")
    )
