"""The scripts of plans, run for real: in a folder that stands for a host, beside a manager and servers with TLS."""

from __future__ import annotations

import ast
import hashlib
import http.server
import json
import os
import ssl
import stat
import subprocess
import sys
import tarfile
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import pytest

from remuda.providers.controlplane import distros, render
from remuda.providers.controlplane.planner.observed import Cluster
from remuda.providers.controlplane.render import Placement
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.controlplane.types import Installer
from tests.lab import certificates
from tests.lab.limits import LIMIT_SECONDS
from tests.unit.providers.controlplane.render import sample

# Notes what it is asked, and says of a unit what the file `state` says.
SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$HOST/systemctl.log"
case $1 in
is-active) cat "$HOST/state" 2>/dev/null || { echo inactive; exit 3; } ;;
--no-block) echo active >"$HOST/state" ;;
stop) rm -f "$HOST/state" ;;
esac
"""


class Service:
    """An HTTPS server that answers what it is given, and remembers what it was asked."""

    def __init__(self, certificate: tuple[bytes, bytes], folder: Path, answers: Mapping[str, bytes]) -> None:
        self.asked: list[str] = []
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked.append(self.path)
                answer = answers.get(self.path)
                self.send_response(404 if answer is None else 200)
                self.send_header("Content-Length", str(len(answer or b"")))
                self.end_headers()
                self.wfile.write(answer or b"")

            def log_message(self, *_: object) -> None:
                pass

        paths = certificates.write(folder, certificate=certificate[0], key=certificate[1])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(paths["certificate"], paths["key"])
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def authority() -> certificates.Authority:
    return certificates.Authority("cluster")


@pytest.fixture
def serve(authority: certificates.Authority, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    running: list[Service] = []

    def start(answers: Mapping[str, bytes], by: certificates.Authority = authority) -> Service:
        folder = tmp_path / f"service-{len(running)}"
        folder.mkdir()
        running.append(Service(by.server("127.0.0.1"), folder, answers))
        return running[-1]

    yield start
    for service in running:
        service.stop()


class Machine:
    """A host that is a folder. Plans are carried out as an agent would: files, then instructions."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.bin = folder / "fake"
        self.bin.mkdir(parents=True)
        self.program("systemctl", SYSTEMCTL)
        self.program("uname", "#!/bin/sh\necho x86_64\n")

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def connect(self, url: str, authority: certificates.Authority) -> None:
        cluster = {"server": url, "certificate-authority-data": b64encode(authority.pem).decode()}
        lines = "".join(f"    {key}: {value}\n" for key, value in cluster.items())
        info = {"kubeConfig": f"clusters:\n- name: agent\n  cluster:\n{lines}", "namespace": "a", "secretName": "b"}
        path = self.path("/var/lib/rancher/agent/rancher2_connection_info.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(info))

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def apply(self, content: bytes) -> subprocess.CompletedProcess[str]:
        plan = plans.read(content)
        for file in plan.files:
            path = self.path(file.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.content)
        for one in plan.instructions:
            done = self.run(one)
            if done.returncode:
                return done
        return done

    def run(self, one: plans.Instruction) -> subprocess.CompletedProcess[str]:
        environment = dict(pair.split("=", 1) for pair in one.env) | {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOST": str(self.root),
            "REMUDA_HOST_ROOT": str(self.root),
            "REMUDA_HOST_ADDRESS": "127.0.0.1",
            "REMUDA_PYTHON": sys.executable,
        }
        return subprocess.run(
            [one.command, *one.args],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    def asked_of_systemd(self) -> list[str]:
        log = self.root / "systemctl.log"
        found = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [line for line in found if not line.startswith("is-active")]


RESTARTED = [
    "daemon-reload",
    "enable k3s.service",
    "reset-failed k3s.service",
    "stop k3s.service",
    "--no-block start k3s.service",
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "host")


def path_of(name: str) -> str:
    return f"/artefacts/k3s/v1.36.4+k3s1/amd64/{name}"


def k3s(authority: certificates.Authority, *artefacts: tuple[str, bytes], **spec: object) -> Cluster:
    return sample.with_(
        sample.plain(**spec),
        installer=Installer(
            version="v1.36.4+k3s1",
            artefacts={"amd64": {name: hashlib.sha256(content).hexdigest() for name, content in artefacts}},
        ),
        authorities={"server/tls/server-ca.crt": authority.pem},
    )


def init(cluster: Cluster) -> bytes:
    return render.render(cluster, sample.host("init"), Placement(init=True))


def joiner(cluster: Cluster, *servers: str) -> bytes:
    return render.render(cluster, sample.host("worker"), Placement(servers=servers))


# ---- installing --------------------------------------------------------------------------------------------------


def test_a_host_is_installed_from_what_the_manager_serves_and_its_service_starts(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    binary, images = b"#!/bin/sh\n", b"images"
    manager = serve({path_of("k3s"): binary, path_of("images.tar.zst"): images})
    machine.connect(manager.url, authority)
    done = machine.apply(init(k3s(authority, ("k3s", binary), ("images.tar.zst", images))))
    assert done.returncode == 0, done.stderr
    installed = machine.path("/usr/local/bin/k3s")
    assert installed.read_bytes() == binary
    assert stat.S_IMODE(installed.stat().st_mode) == 0o755
    assert machine.path("/var/lib/rancher/k3s/agent/images/remuda-images.tar.zst").read_bytes() == images
    assert "ExecStart=/usr/local/bin/k3s server" in machine.path("/etc/systemd/system/k3s.service").read_text()
    assert machine.asked_of_systemd() == RESTARTED
    assert joined(machine) == {"cluster-init": True}


def test_it_restarts_when_the_stamp_has_changed_or_it_does_not_run_and_never_else(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    manager = serve({path_of("k3s"): b"k3s"})
    machine.connect(manager.url, authority)
    plan = init(k3s(authority, ("k3s", b"k3s")))
    for _ in range(2):
        assert machine.apply(plan).returncode == 0
    assert machine.asked_of_systemd() == RESTARTED
    assert manager.asked == [path_of("k3s")]  # nothing is downloaded twice

    changed = init(k3s(authority, ("k3s", b"k3s"), machine_global_config={"debug": True}))
    assert machine.apply(changed).returncode == 0
    assert machine.asked_of_systemd() == RESTARTED

    (machine.root / "state").write_text("activating\n")
    assert machine.apply(changed).returncode == 0
    assert machine.asked_of_systemd() == []  # it is on its way

    (machine.root / "state").write_text("failed\n")
    assert machine.apply(changed).returncode == 0
    assert machine.asked_of_systemd() == RESTARTED


def test_what_is_not_what_was_asked_for_is_refused_and_nothing_is_touched(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    manager = serve({path_of("k3s"): b"something else"})
    machine.connect(manager.url, authority)
    done = machine.apply(init(k3s(authority, ("k3s", b"k3s"))))
    assert done.returncode != 0
    assert f"has the checksum {hashlib.sha256(b'something else').hexdigest()}" in done.stderr
    assert not machine.path("/usr/local/bin/k3s").exists()
    assert not [path for path in machine.path("/var/lib/rancher/capr/artefacts").rglob("*") if path.is_file()]
    assert machine.asked_of_systemd() == []


def test_a_manager_that_somebody_else_vouches_for_is_not_believed(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    manager = serve({path_of("k3s"): b"k3s"}, by=certificates.Authority("impostor"))
    machine.connect(manager.url, authority)
    done = machine.apply(init(k3s(authority, ("k3s", b"k3s"))))
    assert done.returncode != 0
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
    assert manager.asked == []


def test_a_manager_that_has_moved_is_found_by_what_a_plan_brought(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    moved = serve({path_of("k3s"): b"k3s"})
    machine.connect("https://127.0.0.1:9", authority)
    entry = {"server": moved.url, "certificate-authority-data": b64encode(authority.pem).decode()}
    folder = machine.path("/var/lib/rancher/agent/servers.d")
    folder.mkdir()
    (folder / "new.json").write_text(json.dumps(entry))
    assert machine.apply(init(k3s(authority, ("k3s", b"k3s")))).returncode == 0
    assert moved.asked == [path_of("k3s")]


def test_a_host_of_an_architecture_that_was_not_added_says_so(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    machine.connect(serve({}).url, authority)
    machine.program("uname", "#!/bin/sh\necho aarch64\n")
    done = machine.apply(init(k3s(authority, ("k3s", b"k3s"))))
    assert "there is no k3s of k3s v1.36.4+k3s1 for arm64: add it with 'remuda artefacts add'" in done.stderr
    assert done.returncode != 0


def test_an_upgrade_replaces_the_binary_and_forgets_the_old_download(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    manager = serve({path_of("k3s"): b"old"})
    machine.connect(manager.url, authority)
    assert machine.apply(init(k3s(authority, ("k3s", b"old")))).returncode == 0
    newer = serve({path_of("k3s"): b"new"})
    machine.connect(newer.url, authority)
    assert machine.apply(init(k3s(authority, ("k3s", b"new")))).returncode == 0
    assert machine.path("/usr/local/bin/k3s").read_bytes() == b"new"
    kept = [path.read_bytes() for path in machine.path("/var/lib/rancher/capr/artefacts").rglob("k3s")]
    assert kept == [b"new"]


def test_an_installer_image_is_left_to_do_its_work(machine: Machine, authority: certificates.Authority) -> None:
    machine.program("run.sh", '#!/bin/sh\necho "$INSTALL_K3S_EXEC $RESTART_STAMP" >"$HOST/installed"\n')
    cluster = sample.with_(sample.plain(), authorities={"server/tls/server-ca.crt": authority.pem})
    plan = init(cluster)
    assert machine.apply(plan).returncode == 0
    stamp = plans.read(plan).environment()["RESTART_STAMP"]
    assert (machine.root / "installed").read_text() == f"server {stamp}\n"


def test_the_environment_of_the_user_reaches_the_unit_whatever_is_in_it(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    machine.connect(serve({path_of("k3s"): b"k3s"}).url, authority)
    variables = [
        sample.EnvVar(name="NO_PROXY", value='a "quoted" $value'),
        sample.EnvVar(name="K3S_X", value="y"),
        sample.EnvVar(name="OTHER", value="z"),
    ]
    done = machine.apply(init(k3s(authority, ("k3s", b"k3s"), agent_env_vars=variables)))
    assert done.returncode == 0, done.stderr
    path = machine.path("/etc/systemd/system/k3s.service.env")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    lines = path.read_text().splitlines()
    assert 'NO_PROXY="a \\"quoted\\" \\$value"' in lines
    assert 'K3S_X="y"' in lines
    assert not [line for line in lines if line.startswith("OTHER")]


def test_rke2_is_unpacked_once(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority, tmp_path: Path
) -> None:
    archive = tmp_path / "rke2.tar.gz"
    content = tmp_path / "rke2"
    content.write_text("rke2")
    with tarfile.open(archive, "w:gz") as file:
        file.add(content, "bin/rke2")
    version = sample.VERSIONS["rke2"]
    checksum = hashlib.sha256(archive.read_bytes()).hexdigest()
    cluster = sample.with_(
        sample.plain("rke2"),
        installer=Installer(version=version, artefacts={"amd64": {"rke2.tar.gz": checksum}}),
        authorities={"server/tls/server-ca.crt": authority.pem},
    )
    manager = serve({f"/artefacts/rke2/{version}/amd64/rke2.tar.gz": archive.read_bytes()})
    machine.connect(manager.url, authority)
    done = machine.apply(init(cluster))
    assert done.returncode == 0, done.stderr
    installed = machine.path("/usr/local/bin/rke2")
    assert installed.read_text() == "rke2"
    installed.write_text("touched")
    assert machine.apply(init(cluster)).returncode == 0
    assert installed.read_text() == "touched"
    assert "--no-block start rke2-server.service" in machine.asked_of_systemd()
    assert machine.path("/usr/local/lib/systemd/system/rke2-server.env").exists()


# ---- joining -----------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(machine: Machine, serve: Callable[..., Service], authority: certificates.Authority) -> Machine:
    machine.connect(serve({path_of("k3s"): b"k3s"}).url, authority)
    return machine


def joined(machine: Machine) -> object:
    return json.loads(machine.path("/etc/rancher/k3s/config.yaml.d/51-join.yaml").read_text())


def test_a_dead_server_blocks_nobody(
    worker: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    alive = serve({"/ping": b"pong"})
    cluster = k3s(authority, ("k3s", b"k3s"))
    done = worker.apply(joiner(cluster, "https://127.0.0.1:9", alive.url))
    assert done.returncode == 0, done.stderr
    assert joined(worker) == {"server": alive.url}


def test_whoever_has_another_authority_is_not_joined(
    worker: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    impostor = serve({"/ping": b"pong"}, by=certificates.Authority("impostor"))
    done = worker.apply(joiner(k3s(authority, ("k3s", b"k3s")), impostor.url))
    assert done.returncode != 0
    assert "no server to join by answers" in done.stderr
    assert not worker.path("/etc/rancher/k3s/config.yaml.d/51-join.yaml").exists()
    assert worker.asked_of_systemd() == []


def test_a_host_that_has_joined_stays_while_its_server_is_listed(
    worker: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    first, second = serve({"/ping": b"pong"}), serve({"/ping": b"pong"})
    cluster = k3s(authority, ("k3s", b"k3s"))
    assert worker.apply(joiner(cluster, first.url)).returncode == 0
    let_in(worker)
    assert worker.apply(joiner(cluster, second.url, first.url)).returncode == 0
    assert joined(worker) == {"server": first.url}
    assert worker.apply(joiner(cluster, second.url)).returncode == 0
    assert joined(worker) == {"server": second.url}
    assert len(worker.asked_of_systemd()) == len(RESTARTED)  # all of that restarted nothing


def test_a_host_that_has_joined_is_not_stopped_by_servers_that_are_all_away(
    worker: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    first = serve({"/ping": b"pong"})
    cluster = k3s(authority, ("k3s", b"k3s"))
    assert worker.apply(joiner(cluster, first.url)).returncode == 0
    let_in(worker)
    for servers in ((), ("https://127.0.0.1:9",)):
        assert worker.apply(joiner(cluster, *servers)).returncode == 0
        assert joined(worker) == {"server": first.url}


def test_a_host_that_was_never_let_in_tries_another_server_and_none_is_no_success(
    worker: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    """What it was told to join by may have gone before it had joined; its service would try for ever."""
    first, second = serve({"/ping": b"pong"}), serve({"/ping": b"pong"})
    cluster = k3s(authority, ("k3s", b"k3s"))
    assert worker.apply(joiner(cluster, first.url)).returncode == 0
    assert worker.asked_of_systemd() == [line.replace("k3s.", "k3s-agent.") for line in RESTARTED]
    assert worker.apply(joiner(cluster, second.url, first.url)).returncode == 0
    assert worker.asked_of_systemd() == [], "the one it tries answers"
    done = worker.apply(joiner(cluster, "https://127.0.0.1:9"))
    assert done.returncode != 0
    assert "no server to join by answers" in done.stderr
    assert worker.apply(joiner(cluster, "https://127.0.0.1:9", second.url)).returncode == 0
    assert joined(worker) == {"server": second.url}
    assert worker.asked_of_systemd() == [line.replace("k3s.", "k3s-agent.") for line in RESTARTED]


def let_in(machine: Machine) -> None:
    certificate = machine.path("/var/lib/rancher/k3s/agent/client-kubelet.crt")
    certificate.parent.mkdir(parents=True, exist_ok=True)
    certificate.touch()


def test_a_host_that_knows_no_server_begins_no_cluster_of_its_own(
    worker: Machine, authority: certificates.Authority
) -> None:
    done = worker.apply(joiner(k3s(authority, ("k3s", b"k3s"))))
    assert done.returncode != 0
    assert "no server to join by answers: none is listed" in done.stderr
    assert worker.asked_of_systemd() == []


# ---- leaving -----------------------------------------------------------------------------------------------------


def test_a_host_that_leaves_stops_its_service_and_ends_what_it_started(machine: Machine) -> None:
    (machine.root / "state").write_text("active\n")
    killall = machine.path("/usr/local/bin/k3s-killall.sh")
    killall.parent.mkdir(parents=True)
    killall.write_text('#!/bin/sh\ntouch "$HOST/killed"\n')
    killall.chmod(0o755)
    done = machine.apply(render.retire(sample.plain(), sample.host("server")))
    assert done.returncode == 0, done.stderr
    assert machine.asked_of_systemd() == ["disable k3s.service", "stop k3s.service"]
    assert (machine.root / "killed").exists()


def test_a_service_that_does_not_stop_is_told(machine: Machine) -> None:
    machine.program("systemctl", "#!/bin/sh\n[ $1 != is-active ] || echo active\n")
    done = machine.apply(render.retire(sample.plain(), sample.host("server")))
    assert done.returncode != 0
    assert "k3s still runs" in done.stderr


# ---- the files themselves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("distro", sample.VERSIONS)
def test_every_script_is_one_that_a_plain_shell_reads(distro: str, tmp_path: Path) -> None:
    cluster = sample.rich(distro)
    for content in (init(cluster), render.retire(cluster, sample.host("server"))):
        plan = plans.read(content)
        for one in (*plan.instructions, *plan.periodic):
            subprocess.run([one.command, "-n", *one.args], check=True, timeout=LIMIT_SECONDS)


def test_the_tool_is_one_that_an_old_python_reads() -> None:
    ast.parse(files(distros).joinpath("host_tool.py").read_text("utf-8"), feature_version=(3, 9))
