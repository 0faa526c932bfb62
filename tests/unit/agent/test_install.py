"""From a token to a running agent and back to nothing, on a host that is a folder, with real programs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remuda.agent import supervise
from remuda.providers.bootstrap import assets
from tests.lab.certificates import Authority
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ours import Ours
from tests.unit.agent.host import PlanSecret, account, encoded, eventually, host, kubeconfig, shell, wait_for_file
from tests.unit.agent.https import Answer, Asked, serving

AUTHORITY = Authority("site")
CHECKSUM = hashlib.sha256(AUTHORITY.pem).hexdigest()
TOKEN = "the-bootstrap-token"


class Site:
    """What the manager serves to hosts, with its counter of tokens asked for."""

    def __init__(self, connection: str) -> None:
        self.connection = connection
        self.agent = assets.agent_zipapp()
        self.refusal: tuple[int, str] | None = None
        self.asked: list[Asked] = []
        self.may_deliver = threading.Event()
        self.may_deliver.set()

    def __call__(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        if asked.path.startswith("/api/"):
            return 503, {}, b""  # it has moved
        if asked.path == "/cacerts":
            return 200, {}, AUTHORITY.pem
        if asked.path == "/assets/remuda-agent.pyz":
            self.may_deliver.wait(LIMIT_SECONDS)
            return 200, {}, self.agent
        if asked.path == "/assets/remuda-agent.pyz.sha256":
            return 200, {}, hashlib.sha256(self.agent).hexdigest().encode() + b"  remuda-agent.pyz\n"
        if asked.path != "/v3/connect/agent":
            return 404, {}, b"no such thing"
        if self.refusal is not None:
            return self.refusal[0], {}, json.dumps({"message": self.refusal[1]}).encode()
        if asked.headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {}, b'{"message":"unknown token"}'
        return 200, {}, self.connection.encode()


class Folder:
    """A host that is a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        self.var = self.root / "var/lib/rancher/agent"
        self.etc = self.root / "etc/rancher/agent"
        self.program = self.root / "usr/local/bin/remuda-agent"

    def run(self, command: str, *, program: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        delivered = self.folder / "remuda-agent.pyz"
        delivered.write_bytes(assets.agent_zipapp())
        environment = {"PATH": os.environ["PATH"], "HOME": "/", "REMUDA_HOST_ROOT": str(self.root), **variables}
        return subprocess.run(
            [sys.executable, str(program or delivered), command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )

    def agent(self) -> int:
        """The pid of `run`; 0 when there is none."""
        supervisor = supervise.running(str(self.var))
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children")
        try:
            return int((children.read_text().split() or ["0"])[0]) if supervisor else 0
        except OSError:
            return 0


@contextmanager
def folder(path: Path) -> Iterator[Folder]:
    found = Folder(path)
    try:
        yield found
    finally:
        supervise.stop(str(found.var))


Setting = tuple[Folder, Site, PlanSecret, Callable[..., subprocess.CompletedProcess[str]]]


@pytest.fixture
def setting(server: Ours, secret: PlanSecret, tmp_path: Path) -> Iterator[Setting]:
    secret.create()
    info = {"kubeConfig": account(server, secret.name), "namespace": "default", "secretName": secret.name}
    site = Site(json.dumps(info))
    with serving(site, AUTHORITY.server("127.0.0.1"), tmp_path) as port, folder(tmp_path) as host:

        def install(**variables: str) -> subprocess.CompletedProcess[str]:
            given = {
                "CATTLE_SERVER": f"https://127.0.0.1:{port}",
                "CATTLE_TOKEN": TOKEN,
                "CATTLE_CA_CHECKSUM": CHECKSUM,
            }
            given |= {"CATTLE_ROLE_NONE": "true", "REMUDA_HOST_ADDRESS": "127.0.0.5", "CATTLE_NODE_NAME": "node-1"}
            return host.run("install", **(given | variables))

        yield host, site, secret, install


def test_installed_agent_applies_plans_restarts_and_uninstalls_cleanly(setting: Setting) -> None:
    host, site, secret, install = setting
    done = install()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("remuda-agent: the agent is installed and running\n")
    secret.applied(secret.put({"instructions": [shell('echo "${CATTLE_TOKEN:-no token}"', "t", saveOutput=True)]}))
    assert secret.output("t") == b"no token\n"

    headers = next(asked.headers for asked in site.asked if asked.path == "/v3/connect/agent")
    kept = (host.etc / "cattle-id").read_text().strip()
    assert (headers["X-Cattle-Id"], len(kept)) == (kept, 63)
    assert (headers["X-Cattle-Address"], headers["X-Cattle-Node-Name"]) == ("127.0.0.5", "node-1")
    assert headers["X-Cattle-Role-Etcd"] == "false"
    for path in (host.etc / "cattle-id", host.etc / "config.yaml", host.var / "rancher2_connection_info.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert TOKEN not in (host.var / "agent.log").read_text() + done.stdout

    before = eventually(host.agent)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: host.agent() not in (0, before))
    secret.applied(secret.put({"instructions": [shell("true")]}))

    supervisor = supervise.running(str(host.var))
    done = host.run("uninstall", program=host.program)
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(
        lambda: not Path(f"/proc/{supervisor}").exists() or " Z " in Path(f"/proc/{supervisor}/stat").read_text()
    )
    left = [path for path in host.root.rglob("*") if path.is_file()]
    assert left == []
    assert host.run("uninstall").returncode == 0  # twice is fine


_A_TUNNEL = """
folder=$REMUDA_HOST_ROOT/opt/tunnel
mkdir -p "$folder" "$REMUDA_HOST_ROOT/etc/systemd/system"
echo secret >"$folder/token"
cat >"$REMUDA_HOST_ROOT/etc/systemd/system/remuda-tunnel.service" <<END
[Service]
ExecStart=/bin/sh -c "exec sleep 3600" --config "$folder/config.json"
END
systemctl enable --now remuda-tunnel.service
systemctl show -p MainPID --value remuda-tunnel.service
"""


def test_uninstall_stops_and_removes_the_tunnel_client(setting: Setting) -> None:
    host, _, secret, install = setting
    assert install().returncode == 0
    secret.applied(secret.put({"instructions": [shell(_A_TUNNEL, "t", saveOutput=True)]}))
    tunnel = Path(f"/proc/{int(secret.output('t').split()[-1])}")
    assert tunnel.exists()
    done = host.run("uninstall", program=host.program)
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: not tunnel.exists())
    left = [path for path in host.root.rglob("*") if path.is_file() and path.suffix != ".log"]
    assert left == []


def test_reinstall_is_idempotent_and_keeps_host_id(setting: Setting) -> None:
    host, _, secret, install = setting
    assert install().returncode == 0
    kept = (host.etc / "cattle-id").read_text()
    assert install().returncode == 0
    assert (host.etc / "cattle-id").read_text() == kept
    secret.applied(secret.put({"instructions": [shell("true")]}))


def test_reinstall_with_used_token_keeps_existing_connection(setting: Setting) -> None:
    _, site, secret, install = setting
    assert install().returncode == 0
    site.refusal = (401, "this token was used before")
    done = install(REMUDA_PATIENCE_SECONDS="0")
    assert done.returncode == 0, done.stdout
    assert "this token was used before" in done.stdout
    assert "keeping the existing connection" in done.stdout
    secret.applied(secret.put({"instructions": [shell("true")]}))


def test_install_prints_server_rejection_message(setting: Setting) -> None:
    host, site, _, install = setting
    site.refusal = (403, "this token has expired")
    done = install(REMUDA_PATIENCE_SECONDS="0")
    assert done.returncode == 1
    assert "refuses this host" in done.stdout
    assert "this token has expired" in done.stdout
    assert TOKEN not in done.stdout + done.stderr
    assert host.agent() == 0
    assert not (host.var / "interlock/restart-pending").exists()


def test_install_with_wrong_ca_checksum_fails_before_sending_token(setting: Setting) -> None:
    _, site, _, install = setting
    done = install(CATTLE_CA_CHECKSUM="0" * 64)
    assert done.returncode == 1
    assert "has another CA than expected" in done.stdout
    assert [asked.path for asked in site.asked] == ["/cacerts"]  # the token never left this host


def test_install_without_checksum_requires_system_trusted_certificate(setting: Setting) -> None:
    _, site, _, install = setting
    done = install(CATTLE_CA_CHECKSUM="", REMUDA_PATIENCE_SECONDS="0")
    assert done.returncode == 1
    assert "cannot verify its certificate" in done.stdout
    assert site.asked == []


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"CATTLE_SERVER": "http://x"}, "CATTLE_SERVER must be the https:// address"),
        ({"CATTLE_TOKEN": ""}, "CATTLE_TOKEN is missing"),
        ({"CATTLE_CA_CHECKSUM": "", "STRICT_VERIFY": "true"}, "CATTLE_CA_CHECKSUM is missing"),
        ({"CATTLE_SERVER": "https://127.0.0.1:1", "REMUDA_PATIENCE_SECONDS": "0"}, "Connection refused"),
        ({"CATTLE_AGENT_INSTRUCTION_TIMEOUT": "long"}, "is not a number of seconds"),
        ({"CATTLE_NODE_NAME": "a\r\nX-Evil: 1"}, "must be printable ASCII in one line"),
    ],
)
def test_install_with_invalid_settings_fails_with_reason(
    setting: Setting, variables: dict[str, str], words: str
) -> None:
    _, _, _, install = setting
    done = install(**variables)
    assert done.returncode == 1
    assert words in done.stdout


def test_agent_upgrades_itself_only_between_plans(server: Ours, secret: PlanSecret, tmp_path: Path) -> None:
    """And finds its manager, which has moved, by what was delivered to `servers.d`."""
    secret.create()
    through = account(server, secret.name)
    site = Site("")
    site.agent = _with_another_entry(assets.agent_zipapp())
    with (
        serving(site, AUTHORITY.server("127.0.0.1"), tmp_path) as port,
        host(tmp_path / "host", through, secret.name, upgrade=True, serversDirectory="") as found,
    ):
        moved = kubeconfig(f"https://127.0.0.1:{port}", AUTHORITY.pem, through.split("token: ")[1].strip())
        info = {"kubeConfig": moved, "namespace": "default", "secretName": secret.name}
        found.private("connection.json", json.dumps(info))
        (found.folder / "servers.d").mkdir()
        more = {"server": server.url, "certificate-authority-data": encoded(server.ca_pem)}
        found.private("servers.d/new.json", json.dumps(more))
        wait = wait_for_file("$REMUDA_HOST_ROOT/go")
        script = f"touch $REMUDA_HOST_ROOT/begun; {wait}; sha256sum < $PROGRAM"
        checksum = secret.put({"instructions": [shell(script, "p", saveOutput=True)]})
        site.may_deliver.clear()
        found.start(PROGRAM=str(found.program))
        eventually(lambda: (found.root / "begun").exists())
        site.may_deliver.set()
        eventually(lambda: any(asked.path == "/assets/remuda-agent.pyz" for asked in site.asked))
        time.sleep(0.5)  # in which an agent that does not wait for the plan replaces itself
        (found.root / "go").touch()
        secret.applied(checksum)
        assert secret.output("p").decode().split()[0] == assets.agent_checksum()  # not while a plan was running
        eventually(lambda: found.program.read_bytes() == site.agent)
        eventually(lambda: found.said().count("following the plan Secret") == 2)
        assert found.process is not None
        assert found.process.poll() is None
        secret.applied(secret.put({"instructions": [shell("true")]}))


def test_broken_agent_upgrade_is_rejected(tmp_path: Path) -> None:
    program = tmp_path / "agent.pyz"
    program.write_bytes(assets.agent_zipapp())
    script = (
        f"import sys; sys.path.insert(0, {str(program)!r}); from remuda.agent import upgrade; "
        f"upgrade.exchange({str(program)!r}, b'broken')"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert "the newer agent does not run on this host; keeping this one" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["agent.pyz"]
    assert program.read_bytes() == assets.agent_zipapp()


def _with_another_entry(program: bytes) -> bytes:
    target = io.BytesIO(program)
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("remuda/agent/newer.py", "")
    return target.getvalue()
