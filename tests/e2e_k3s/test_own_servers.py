"""docs/own-servers.md, typed line by line: from two servers to a Pod on real k3s, and back.

The commands are those of the page. Only addresses differ, and the channels: the release is one of this machine, on an
HTTPS server whose certificate authority the user trusts. The servers are hosts in systemd-nspawn, prepared for k3s by
their owner as examples/k3s-nspawn.yaml does it. They reach no registry: the images of the release have the Pod's, too.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest
import yaml

from tests.e2e_k3s import images
from tests.e2e_k3s.k3s_cluster import FILES, PATIENCE_SECONDS, PLACE, ROOT, VERSION, needed, require_packages
from tests.e2e_k3s.k3s_cluster import room_for_watches as room
from tests.lab.hosts import Host, Network, open_network
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
    """A user with two servers, a key for them and a folder."""

    def __init__(self, network: Network, releases: ReleaseServer, home: Path) -> None:
        (kubectl,) = require_peer("kubectl")
        self.home = home
        (home / ".ssh").mkdir(mode=0o700)
        key = asyncssh.generate_private_key("ssh-ed25519")
        path = home / ".ssh/id_ed25519"
        path.touch(mode=0o600)
        path.write_bytes(key.export_private_key())
        self.public_key = key.export_public_key().decode().strip()
        (home / "channels.yaml").write_text(releases.channels(VERSION))
        programs = home / "bin"
        programs.mkdir()
        (programs / "kubectl").symlink_to(kubectl)
        (programs / "remuda").symlink_to(Path(sys.executable).with_name("remuda"))
        self.environment = {
            "HOME": str(home),
            "PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "REMUDA_CHANNELS": str(home / "channels.yaml"),
            "SSL_CERT_FILE": str(releases.ca),
            "NO_PROXY": network.address,
        }
        self.network = network

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

    def types(self, command: str) -> str:
        """Return what a command prints; it ends well. An export holds for those after it."""
        words = shlex.split(command)
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.environment[name] = value.replace("$PWD", str(self.home))
            return ""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout[-4000:]}\n{self._log()}"
        return done.stdout

    def _log(self) -> str:
        found = [path for path in (self.home / "remuda-data").rglob("*.log") if path.is_file()]
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in found)

    def ends(self) -> None:
        """End the management plane, whatever has failed before."""
        subprocess.run(
            [self.home / "bin/remuda", "down"],
            cwd=self.home,
            env=self.environment,
            check=False,
            timeout=PATIENCE_SECONDS,
        )


@pytest.fixture
def owner(network: Network, releases: ReleaseServer, tmp_path: Path) -> Iterator[Owner]:
    found = Owner(network, releases, tmp_path)
    try:
        yield found
    finally:
        found.ends()


def test_page_leads_from_two_servers_to_a_pod(owner: Owner, capsys: pytest.CaptureFixture[str]) -> None:
    async def hosts() -> list[Host]:
        return list(await asyncio.gather(owner.server("first", server=True), owner.server("second", server=False)))

    first, second = asyncio.run(hosts())
    addresses = {
        "192.0.2.1": owner.network.address,
        "192.0.2.10": first.address,
        "192.0.2.11": second.address,
    }
    printed = {line: owner.types(substituted(line, addresses)) for line in commands(PAGE.read_text())}

    def output(beginning: str) -> str:
        (found,) = [text for line, text in printed.items() if line.startswith(beginning)]
        return found

    said = asyncio.run(first.run("k3s --version"))
    with capsys.disabled():
        print(f"\n{said}", end="")
    assert f"k3s version {VERSION}" in said
    assert "k3s: downloading" in output("remuda artefacts add")
    assert f"Cluster ranch created: {VERSION}, 1 server, 1 worker, driver existing" in output("remuda create cluster")
    nodes = output("kubectl --kubeconfig ranch.kubeconfig get nodes")
    assert [line.split()[4] for line in nodes.splitlines()[1:]] == [VERSION] * 2
    pod = output("kubectl --kubeconfig ranch.kubeconfig get pod").splitlines()[1].split()
    assert (pod[2], pod[6]) == ("Running", "second")
    key = (owner.home / ".ssh/id_ed25519").read_text()
    assert not [line for line, text in printed.items() if key.splitlines()[1] in text]
    assert (
        asyncio.run(second.run("ls /etc/remuda/claim.json", check=False)).strip().endswith("No such file or directory")
    )
