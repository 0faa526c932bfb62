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
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from remuda.agent.files import bring
from remuda.agent.plan import parse
from remuda.lab.units import unitfile
from remuda.providers.bootstrap import assets
from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import ClusterFacts
from remuda.providers.controlplane.render import Placement
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.shared import distros
from remuda.providers.shared.types.controlplane import Installer
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
show) cat "$HOST/job" 2>/dev/null ;;
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
        for file in parse(content).files:
            bring(file, str(self.root))
        for one in plans.read(content).instructions:
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
        return [line for line in found if not line.startswith(("is-active", "show"))]


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


def k3s(authority: certificates.Authority, *artefacts: tuple[str, bytes], **spec: object) -> ClusterFacts:
    return sample.with_(
        sample.plain(**spec),
        installer=Installer(
            version="v1.36.4+k3s1",
            artefacts={"amd64": {name: hashlib.sha256(content).hexdigest() for name, content in artefacts}},
        ),
        authorities={"server/tls/server-ca.crt": authority.pem},
    )


def init(cluster: ClusterFacts) -> bytes:
    return render.render(cluster, sample.host("init"), Placement(init=True))


def joiner(cluster: ClusterFacts, *servers: str) -> bytes:
    return render.render(cluster, sample.host("worker"), Placement(servers=servers))


# ---- installing --------------------------------------------------------------------------------------------------


def test_install_downloads_artefacts_and_starts_service(
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


def test_service_restarts_only_on_changed_stamp_or_failure(
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


def test_artefact_with_wrong_checksum_is_rejected_and_host_unchanged(
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


def test_manager_with_foreign_ca_is_rejected(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    manager = serve({path_of("k3s"): b"k3s"}, by=certificates.Authority("impostor"))
    machine.connect(manager.url, authority)
    done = machine.apply(init(k3s(authority, ("k3s", b"k3s"))))
    assert done.returncode != 0
    assert "CERTIFICATE_VERIFY_FAILED" in done.stderr
    assert manager.asked == []


def test_moved_manager_is_found_through_servers_directory(
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


def test_missing_architecture_is_reported_with_add_command(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    machine.connect(serve({}).url, authority)
    machine.program("uname", "#!/bin/sh\necho aarch64\n")
    done = machine.apply(init(k3s(authority, ("k3s", b"k3s"))))
    assert "there is no k3s of k3s v1.36.4+k3s1 for arm64: add it with 'remuda artefacts add'" in done.stderr
    assert done.returncode != 0


def test_upgrade_replaces_the_binary_and_forgets_the_old_download(
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


def test_installer_image_runs_its_own_script(machine: Machine, authority: certificates.Authority) -> None:
    machine.program("run.sh", '#!/bin/sh\necho "$INSTALL_K3S_EXEC $RESTART_STAMP" >"$HOST/installed"\n')
    cluster = sample.with_(sample.plain(), authorities={"server/tls/server-ca.crt": authority.pem})
    plan = init(cluster)
    assert machine.apply(plan).returncode == 0
    stamp = plans.read(plan).environment()["RESTART_STAMP"]
    assert (machine.root / "installed").read_text() == f"server {stamp}\n"


def test_user_environment_is_quoted_in_unit_environment_file(
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


# ---- RKE2 --------------------------------------------------------------------------------------------------------

UNIT = """[Service]
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/usr/local/lib/systemd/system/%N.env
ExecStart=/usr/local/bin/rke2 server
"""
RELEASE = {
    "bin/rke2": "rke2",
    "bin/rke2-killall.sh": "#!/bin/sh\n",
    "bin/rke2-uninstall.sh": "#!/bin/sh\nrm -f /usr/local/bin/rke2\n",
    "lib/systemd/system/rke2-server.service": UNIT,
    "lib/systemd/system/rke2-server.env": "HOME=/root\n",
    "lib/systemd/system/rke2-agent.service": UNIT.replace("server", "agent"),
    "lib/systemd/system/rke2-agent.env": "HOME=/root\n",
    "share/rke2/rke2-cis-sysctl.conf": "vm.panic_on_oom=0\n",
}  # the shape of rke2.linux-amd64.tar.gz


def release(folder: Path, other: Mapping[str, str] = {}) -> bytes:
    archive = folder / "rke2.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for name, text in {**RELEASE, **other}.items():
            path = folder / "release" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755 if name.startswith("bin/") else 0o644)
            file.add(path, name)
    return archive.read_bytes()


@pytest.fixture
def rke2(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority, tmp_path: Path
) -> ClusterFacts:
    """A cluster whose release the manager serves to the machine."""
    return served(machine, serve, authority, release(tmp_path))


def served(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority, content: bytes
) -> ClusterFacts:
    version = sample.VERSIONS["rke2"]
    machine.connect(serve({f"/artefacts/rke2/{version}/amd64/rke2.tar.gz": content}).url, authority)
    artefacts = {"amd64": {"rke2.tar.gz": hashlib.sha256(content).hexdigest()}}
    return sample.with_(
        sample.plain("rke2", agent_env_vars=[sample.EnvVar(name="RKE2_X", value="y")]),
        installer=Installer(version=version, artefacts=artefacts),
        authorities={"server/tls/server-ca.crt": authority.pem},
    )


def test_rke2_is_unpacked_once(machine: Machine, rke2: ClusterFacts) -> None:
    done = machine.apply(init(rke2))
    assert done.returncode == 0, done.stderr
    installed = machine.path("/usr/local/bin/rke2")
    assert installed.read_text() == "rke2"
    installed.write_text("touched")
    assert machine.apply(init(rke2)).returncode == 0
    assert installed.read_text() == "touched"
    assert "--no-block start rke2-server.service" in machine.asked_of_systemd()


def test_rke2_environment_is_kept_apart_from_release_environment(machine: Machine, rke2: ClusterFacts) -> None:
    released = machine.path("/usr/local/lib/systemd/system/rke2-server.env")
    for content in ("HOME=/root\n", "HOME=/root\nEDITED=yes\n"):
        assert machine.apply(init(rke2)).returncode == 0
        assert released.read_text() == content
        machine.path("/usr/local/share/rke2/remuda-installed").unlink()  # as if another version were installed
        released.write_text("HOME=/root\nEDITED=yes\n")
    ours = machine.path("/etc/rancher/rke2/rke2-server.env")
    assert stat.S_IMODE(ours.stat().st_mode) == 0o600
    assert 'RKE2_X="y"' in ours.read_text().splitlines()
    drop_in = machine.path("/etc/systemd/system/rke2-server.service.d/50-remuda.conf").read_text()
    assert drop_in == "[Service]\nEnvironmentFile=-/etc/rancher/rke2/rke2-server.env\n"


def test_image_archives_are_placed_and_unwanted_archives_removed(
    machine: Machine,
    serve: Callable[..., Service],
    authority: certificates.Authority,
    rke2: ClusterFacts,
    tmp_path: Path,
) -> None:
    offered = {"rke2.tar.gz": (tmp_path / "rke2.tar.gz").read_bytes()}
    offered |= {f"images-{name}.tar.zst": name.encode() for name in ("core", "calico")}
    version = sample.VERSIONS["rke2"]
    manager = serve({f"/artefacts/rke2/{version}/amd64/{name}": content for name, content in offered.items()})
    machine.connect(manager.url, authority)
    folder = machine.path("/var/lib/rancher/rke2/agent/images")
    for wanted in (("rke2.tar.gz", "images-core.tar.zst", "images-calico.tar.zst"), ("rke2.tar.gz",)):
        sums = {name: hashlib.sha256(offered[name]).hexdigest() for name in wanted}
        artefacts = {"amd64": sums, "arm64": {"images-other.tar.zst": "f" * 64}}
        done = machine.apply(init(sample.with_(rke2, installer=Installer(version=version, artefacts=artefacts))))
        assert done.returncode == 0, done.stderr
        placed = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert placed == {f"remuda-{name}": offered[name] for name in wanted if name.startswith("images")}


@pytest.mark.parametrize("why", ["mount point", "read-only"])
def test_rke2_is_installed_below_opt_when_usr_local_is_not_writable(
    machine: Machine, rke2: ClusterFacts, why: str
) -> None:
    if why == "mount point":
        machine.program("mountpoint", f'#!/bin/sh\n[ "$1 $2" = "-q {machine.root}/usr/local" ]\n')
    else:
        machine.path("/usr").mkdir()
        machine.path("/usr/local").write_text("no directory can be made here")
    done = machine.apply(init(rke2))
    assert done.returncode == 0, done.stderr
    assert machine.path("/opt/rke2/bin/rke2").read_text() == "rke2"
    assert not machine.path("/usr/local/bin/rke2").exists()
    unit = machine.path("/etc/systemd/system/rke2-server.service").read_text()
    assert "ExecStart=/opt/rke2/bin/rke2 server" in unit
    assert "EnvironmentFile=-/opt/rke2/lib/systemd/system/%N.env" in unit
    assert "/opt/rke2/bin/rke2" in machine.path("/opt/rke2/bin/rke2-uninstall.sh").read_text()


def test_installed_files_get_selinux_labels(machine: Machine, rke2: ClusterFacts) -> None:
    machine.program("restorecon", '#!/bin/sh\necho "$*" >>"$HOST/labelled"\n')
    assert machine.apply(init(rke2)).returncode == 0
    (labelled,) = (machine.root / "labelled").read_text().splitlines()
    assert labelled.startswith("-R -i ")
    assert f"{machine.root}/usr/local/bin/rke2" in labelled.split()
    assert f"{machine.root}/usr/local/lib/systemd/system/rke2-server.service" in labelled.split()
    assert f"{machine.root}/usr/local/bin" not in labelled.split()  # files of others keep their labels


def test_fapolicyd_rules_allow_rke2_directories(machine: Machine, rke2: ClusterFacts) -> None:
    rules = machine.path("/etc/fapolicyd/rules.d/80-rke2.rules")
    rules.parent.mkdir(parents=True)
    machine.program("fagenrules", '#!/bin/sh\necho "fagenrules $*" >>"$HOST/systemctl.log"\n')
    (machine.root / "state").write_text("active\n")
    assert machine.apply(init(rke2)).returncode == 0
    assert machine.asked_of_systemd()[1:3] == ["fagenrules --load", "restart fapolicyd.service"]
    assert "allow perm=any all : dir=/var/lib/rancher/rke2/" in rules.read_text().splitlines()
    assert machine.apply(init(rke2)).returncode == 0
    assert machine.asked_of_systemd() == []


def test_control_plane_without_join_server_is_not_started(machine: Machine, rke2: ClusterFacts) -> None:
    """RKE2 would begin a cluster of its own, on SQLite."""
    host = sample.host("control-plane")
    for servers in ((), ("https://127.0.0.1:9",)):
        done = machine.apply(render.render(rke2, host, Placement(servers=servers)))
        assert done.returncode != 0
        assert "no server to join by answers" in done.stderr
        assert machine.asked_of_systemd() == []


def test_unit_does_not_start_without_its_join_file_until_the_host_has_left(
    machine: Machine, rke2: ClusterFacts
) -> None:
    assert machine.apply(init(rke2)).returncode == 0
    guard = machine.path("/etc/systemd/system/rke2-server.service.d/50-remuda-join.conf")
    join_file = "/etc/rancher/rke2/config.yaml.d/51-join.yaml"
    assert guard.read_text() == f"[Unit]\nAssertPathExists={join_file}\n"
    assert machine.path(join_file).exists()
    assert machine.apply(render.retire(rke2, sample.host("init"))).returncode == 0
    assert not guard.parent.exists()


# ---- profiles ----------------------------------------------------------------------------------------------------

# They write what they were asked, and make the account.
GROUPADD = '#!/bin/sh\necho "groupadd $*" >>"$HOST/accounts"\necho etcd:x:9: >>"$HOST/etc/group"\n'
USERADD = '#!/bin/sh\necho "useradd $*" >>"$HOST/accounts"\necho etcd:x:9:9 >>"$HOST/etc/passwd"\n'
ADVICE = "/var/lib/rancher/capr/advice"
SYSCTLS = "/etc/sysctl.d/60-rke2-cis.conf"


def test_cis_profile_makes_user_and_group_etcd_and_places_the_sysctls(machine: Machine, rke2: ClusterFacts) -> None:
    machine.program("groupadd", GROUPADD)
    machine.program("useradd", USERADD)
    machine.program("sysctl", '#!/bin/sh\ntouch "$HOST/kernel-was-changed"\n')
    for _ in range(2):
        done = machine.apply(init(with_settings(rke2, {"profile": "cis"})))
        assert done.returncode == 0, done.stderr
    group, user = (machine.root / "accounts").read_text().splitlines()
    assert group == f"groupadd --system --prefix {machine.root} etcd"
    assert user.startswith("useradd --system --gid etcd --no-create-home --shell /sbin/nologin ")
    assert machine.path(SYSCTLS).read_text() == "vm.panic_on_oom=0\n"
    assert not machine.path(ADVICE).exists()
    assert not (machine.root / "kernel-was-changed").exists(), "a host that is a folder has no kernel of its own"


@pytest.mark.parametrize(
    ("settings", "accounts", "sysctls"),
    [({}, False, False), ({"profile": "etcd"}, True, False), ({"profile": "cis"}, True, True)],
)
def test_profile_determines_host_preparation(
    machine: Machine, rke2: ClusterFacts, settings: dict[str, object], accounts: bool, sysctls: bool
) -> None:
    machine.program("groupadd", GROUPADD)
    machine.program("useradd", USERADD)
    assert machine.apply(init(with_settings(rke2, settings))).returncode == 0
    assert (machine.root / "accounts").exists() is accounts
    assert machine.path(SYSCTLS).exists() is sysctls


def test_unprepared_host_is_installed_with_advice(machine: Machine, rke2: ClusterFacts) -> None:
    for name in ("groupadd", "useradd"):
        machine.program(name, "#!/bin/sh\necho 'Permission denied' >&2\nexit 10\n")
    done = machine.apply(init(with_settings(rke2, {"profile": "cis"})))
    assert done.returncode == 0, done.stderr
    said = "profile cis needs user and group etcd, which cannot be created here: create them on the host\n"
    assert said in done.stdout
    assert machine.path(ADVICE).read_text() == said
    machine.program("groupadd", GROUPADD)
    machine.program("useradd", USERADD)
    assert machine.apply(init(with_settings(rke2, {"profile": "cis"}))).returncode == 0
    assert not machine.path(ADVICE).exists()


def test_agent_with_cis_profile_creates_no_etcd_user(
    machine: Machine, serve: Callable[..., Service], rke2: ClusterFacts, authority: certificates.Authority
) -> None:
    server = serve({"/ping": b"pong"})
    machine.program("useradd", USERADD)
    done = machine.apply(joiner(with_settings(rke2, {"profile": "cis"}), server.url))
    assert done.returncode == 0, done.stderr
    assert not (machine.root / "accounts").exists()
    assert machine.path(SYSCTLS).exists()


def test_sysctls_are_placed_after_installer_image(machine: Machine, authority: certificates.Authority) -> None:
    path = machine.path("/opt/rke2/share/rke2/rke2-cis-sysctl.conf")
    machine.program("run.sh", f"#!/bin/sh\nmkdir -p {path.parent}\necho vm.overcommit_memory=1 >{path}\n")
    machine.program("groupadd", GROUPADD)
    machine.program("useradd", USERADD)
    cluster = sample.plain("rke2", machine_global_config={"profile": "cis"})
    done = machine.apply(init(sample.with_(cluster, authorities={"server/tls/server-ca.crt": authority.pem})))
    assert done.returncode == 0, done.stderr
    assert machine.path(SYSCTLS).read_text() == "vm.overcommit_memory=1\n"
    assert (machine.root / "accounts").exists()


@pytest.mark.parametrize(("code", "advised"), [(0, False), (1, True)])
def test_sysctls_are_applied_and_failure_gives_advice(
    machine: Machine, rke2: ClusterFacts, code: int, advised: bool
) -> None:
    """The one function alone, because a whole installation would change this machine."""
    machine.program("sysctl", f'#!/bin/sh\necho "$*" >>"$HOST/sysctl"\nexit {code}\n')
    install = plans.read(init(with_settings(rke2, {"profile": "cis"}))).instructions[0]
    script = install.args[1].rpartition("main\n")[0] + f"ROOT=\nSTATE_DIR={machine.root}\napply_sysctls /nowhere\n"
    done = machine.run(msgspec.structs.replace(install, args=["-c", script]))
    assert done.returncode == 0, done.stderr
    assert (machine.root / "sysctl").read_text() == f"-p {SYSCTLS}\n"
    assert (machine.root / "advice").exists() is advised
    assert ("profile cis needs the kernel settings of" in done.stdout) is advised


# ---- a unit that is active ---------------------------------------------------------------------------------------

ACTIVE = "/var/lib/rancher/capr/active-rke2-server.crt"
SERVER_CA = "/var/lib/rancher/rke2/server/tls/server-ca.crt"
MARKS = "/etc/systemd/system/rke2-server.service.d/50-remuda-active.conf"


def is_marked_active(machine: Machine) -> bool:
    link = machine.path(ACTIVE)
    assert not link.is_symlink() or link.readlink() == machine.path(SERVER_CA)
    return link.is_symlink()


def with_settings(cluster: ClusterFacts, settings: dict[str, object]) -> ClusterFacts:
    return sample.with_(cluster, spec=msgspec.structs.replace(cluster.spec, machine_global_config=settings))


def test_active_mark_is_set_by_systemd_drop_in(machine: Machine, rke2: ClusterFacts) -> None:
    assert machine.apply(init(rke2)).returncode == 0
    authority, link = machine.path(SERVER_CA), machine.path(ACTIVE)
    assert machine.path(MARKS).read_text().splitlines() == [
        "[Service]",
        f'ExecStartPre=-/bin/rm -f "{link}"',
        f'ExecStartPost=-/bin/ln -sfn "{authority}" "{link}"',
        f'ExecStopPost=-/bin/rm -f "{link}"',
    ]
    assert not is_marked_active(machine)


def test_drop_in_paths_are_escaped_for_systemd(machine: Machine, rke2: ClusterFacts) -> None:
    odd = '/srv/a "b" 50%$HOME'
    spec = msgspec.structs.replace(rke2.spec, data_directories=sample.DataDirectories(provisioning=odd))
    assert machine.apply(init(sample.with_(rke2, spec=spec))).returncode == 0
    text = machine.path(MARKS).read_text()
    (command,) = unitfile.parse("rke2-server.service", f"[Service]\nExecStart=/bin/true\n{text}").after
    wanted = ["/bin/rm", "-f", f"{machine.root}{odd}/active-rke2-server.crt"]
    assert unitfile.filled(command.words, {"HOME": "no"}) == wanted


def test_running_unit_is_marked_active_and_restarting_unit_is_not(machine: Machine, rke2: ClusterFacts) -> None:
    """The first is a host that was installed before units were marked."""
    assert machine.apply(init(rke2)).returncode == 0
    for state, marked in (("activating", False), ("active", True)):
        (machine.root / "state").write_text(f"{state}\n")
        machine.path(MARKS).unlink()
        machine.asked_of_systemd()
        assert machine.apply(init(rke2)).returncode == 0
        assert is_marked_active(machine) is marked
        assert "daemon-reload" in machine.asked_of_systemd(), "else systemd would not know the drop-in"
    assert machine.apply(init(rke2)).returncode == 0
    assert machine.asked_of_systemd() == []
    machine.program("systemctl", f'#!/bin/sh\n[ "$1" != stop ] || test ! -L "{machine.path(ACTIVE)}"\n')
    done = machine.apply(init(with_settings(rke2, {"debug": True})))
    assert done.returncode == 0, "it was still marked when it was stopped"
    assert not is_marked_active(machine)


def test_retired_host_has_no_mark(machine: Machine, rke2: ClusterFacts) -> None:
    assert machine.apply(init(rke2)).returncode == 0
    machine.path(ACTIVE).symlink_to(machine.path(SERVER_CA))
    assert machine.apply(render.retire(rke2, sample.host("init"))).returncode == 0
    assert not is_marked_active(machine)
    assert not machine.path(MARKS).parent.exists()


@pytest.mark.parametrize(
    ("job", "state", "marked"), [("", "active", True), ("17", "active", False), ("", "activating", False)]
)
@pytest.mark.parametrize("code", [0, 7])
def test_unit_is_marked_active_after_installer_image_unless_restarting(
    machine: Machine, authority: certificates.Authority, job: str, state: str, marked: bool, code: int
) -> None:
    machine.program("run.sh", f'#!/bin/sh\n[ ! -L "{machine.path(ACTIVE)}" ] || exit 9\nexit {code}\n')
    (machine.root / "state").write_text(f"{state}\n")
    (machine.root / "job").write_text(job)
    machine.path(ACTIVE).parent.mkdir(parents=True)
    machine.path(ACTIVE).symlink_to(machine.path(SERVER_CA))
    cluster = sample.with_(sample.plain("rke2"), authorities={"server/tls/server-ca.crt": authority.pem})
    assert machine.apply(init(cluster)).returncode == code
    assert is_marked_active(machine) is marked


RKE2_PROGRAM = """#!{python}
import os, socket, time
while not os.path.exists("{root}/go"):
    time.sleep(0.02)
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", "\\0" + os.environ["NOTIFY_SOCKET"][1:])
time.sleep(1000)
"""


def test_active_mark_follows_unit_restarts(
    machine: Machine, serve: Callable[..., Service], authority: certificates.Authority, tmp_path: Path
) -> None:
    """With the systemctl of process hosts in place of the stand-in."""
    agent = tmp_path / "agent.pyz"
    agent.write_bytes(assets.agent_zipapp())
    machine.program(
        "systemctl", f'#!/bin/sh\nexec {sys.executable} -I -S {agent} systemctl --root {machine.root} -- "$@"\n'
    )
    program = RKE2_PROGRAM.format(python=sys.executable, root=machine.root)
    unit = f"{UNIT}Type=notify\nRestart=always\n"
    content = release(tmp_path, {"bin/rke2": program, "lib/systemd/system/rke2-server.service": unit})
    rke2 = served(machine, serve, authority, content)
    go = machine.root / "go"
    try:
        for settings in ({}, {"debug": True}):  # the second one restarts it
            done = machine.apply(init(with_settings(rke2, settings)))
            assert done.returncode == 0, done.stderr
            assert not is_marked_active(machine)
            go.touch()
            eventually(lambda: is_marked_active(machine))
            assert machine.path(ACTIVE).read_bytes() == authority.pem
            go.unlink()
    finally:
        done = machine.apply(render.retire(rke2, sample.host("init")))
    assert done.returncode == 0, done.stderr
    assert not is_marked_active(machine)


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- authorities -------------------------------------------------------------------------------------------------

ETCD_CA = "server/tls/etcd/peer-ca.crt"


def with_authority(authority: certificates.Authority, content: bytes, **spec: object) -> bytes:
    cluster = k3s(authority, ("k3s", b"k3s"), **spec)
    return init(sample.with_(cluster, authorities={**cluster.authorities, ETCD_CA: content}))


def given_away(path: Path) -> tuple[int, int, int]:
    """Do what RKE2 does under its CIS profile: give the file to user etcd."""
    path.chmod(0o440)
    if os.geteuid() == 0:
        os.chown(path, 52034, 52034)
    return owner(path)


def owner(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def test_authorities_are_placed_before_service_start_and_staging_is_empty(
    worker: Machine, authority: certificates.Authority
) -> None:
    done = worker.apply(with_authority(authority, b"etcd"))
    assert done.returncode == 0, done.stderr
    placed = worker.path(f"/var/lib/rancher/k3s/{ETCD_CA}")
    assert placed.read_bytes() == b"etcd"
    assert stat.S_IMODE(placed.stat().st_mode) == 0o600
    staged = worker.path("/var/lib/rancher/capr/authorities")
    assert not [path for path in staged.rglob("*") if path.is_file()]


def test_authority_with_the_same_content_keeps_its_owner_and_mode(
    worker: Machine, authority: certificates.Authority
) -> None:
    """Under `profile: cis` RKE2 gives etcd's authorities to user etcd, which cannot start again without them."""
    assert worker.apply(with_authority(authority, b"etcd")).returncode == 0
    placed = worker.path(f"/var/lib/rancher/k3s/{ETCD_CA}")
    expected, inode = given_away(placed), placed.stat().st_ino
    assert worker.apply(with_authority(authority, b"etcd", additional_manifest="kind: Namespace")).returncode == 0
    assert (owner(placed), placed.stat().st_ino) == (expected, inode)


def test_authority_with_another_content_is_replaced_and_keeps_its_owner_and_mode(
    worker: Machine, authority: certificates.Authority
) -> None:
    assert worker.apply(with_authority(authority, b"etcd")).returncode == 0
    placed = worker.path(f"/var/lib/rancher/k3s/{ETCD_CA}")
    expected = given_away(placed)
    assert worker.apply(with_authority(authority, b"another")).returncode == 0
    assert placed.read_bytes() == b"another"
    assert owner(placed) == expected


# ---- joining -----------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(machine: Machine, serve: Callable[..., Service], authority: certificates.Authority) -> Machine:
    machine.connect(serve({path_of("k3s"): b"k3s"}).url, authority)
    return machine


def joined(machine: Machine) -> object:
    return json.loads(machine.path("/etc/rancher/k3s/config.yaml.d/51-join.yaml").read_text())


def test_dead_join_server_is_skipped(
    worker: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    alive = serve({"/ping": b"pong"})
    cluster = k3s(authority, ("k3s", b"k3s"))
    done = worker.apply(joiner(cluster, "https://127.0.0.1:9", alive.url))
    assert done.returncode == 0, done.stderr
    assert joined(worker) == {"server": alive.url}


def test_server_with_foreign_ca_is_not_joined(
    worker: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    impostor = serve({"/ping": b"pong"}, by=certificates.Authority("impostor"))
    done = worker.apply(joiner(k3s(authority, ("k3s", b"k3s")), impostor.url))
    assert done.returncode != 0
    assert "no server to join by answers" in done.stderr
    assert not worker.path("/etc/rancher/k3s/config.yaml.d/51-join.yaml").exists()
    assert worker.asked_of_systemd() == []


def test_joined_host_keeps_its_server_while_listed(
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


def test_joined_host_tolerates_unreachable_servers(
    worker: Machine, serve: Callable[..., Service], authority: certificates.Authority
) -> None:
    first = serve({"/ping": b"pong"})
    cluster = k3s(authority, ("k3s", b"k3s"))
    assert worker.apply(joiner(cluster, first.url)).returncode == 0
    let_in(worker)
    for servers in ((), ("https://127.0.0.1:9",)):
        assert worker.apply(joiner(cluster, *servers)).returncode == 0
        assert joined(worker) == {"server": first.url}


def test_unjoined_host_tries_next_server_and_fails_without_one(
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


def test_host_without_join_server_starts_no_cluster(worker: Machine, authority: certificates.Authority) -> None:
    done = worker.apply(joiner(k3s(authority, ("k3s", b"k3s"))))
    assert done.returncode != 0
    assert "no server to join by answers: none is listed" in done.stderr
    assert worker.asked_of_systemd() == []


# ---- leaving -----------------------------------------------------------------------------------------------------


def test_retired_host_stops_service_and_runs_killall(machine: Machine) -> None:
    (machine.root / "state").write_text("active\n")
    killall = machine.path("/usr/local/bin/k3s-killall.sh")
    killall.parent.mkdir(parents=True)
    killall.write_text('#!/bin/sh\ntouch "$HOST/killed"\n')
    killall.chmod(0o755)
    done = machine.apply(render.retire(sample.plain(), sample.host("server")))
    assert done.returncode == 0, done.stderr
    assert machine.asked_of_systemd() == ["disable k3s.service", "stop k3s.service"]
    assert (machine.root / "killed").exists()


def test_service_that_does_not_stop_is_reported(machine: Machine) -> None:
    machine.program("systemctl", "#!/bin/sh\n[ $1 != is-active ] || echo active\n")
    done = machine.apply(render.retire(sample.plain(), sample.host("server")))
    assert done.returncode != 0
    assert "k3s still runs" in done.stderr


@pytest.mark.parametrize(("distro", "variable"), [("k3s", "K3S_DATA_DIR"), ("rke2", "RKE2_DATA_DIR")])
def test_killall_script_gets_data_directory(machine: Machine, distro: str, variable: str) -> None:
    killall = machine.path(f"/usr/local/bin/{distro}-killall.sh")
    killall.parent.mkdir(parents=True)
    killall.write_text(f'#!/bin/sh\necho "${variable}" >"$HOST/killed"\n')
    killall.chmod(0o755)
    cluster = sample.plain(distro, data_directories=sample.DataDirectories(k8s_distro="/data/there/"))
    done = machine.apply(render.retire(cluster, sample.host("server")))
    assert done.returncode == 0, done.stderr
    assert (machine.root / "killed").read_text() == "/data/there\n"


def test_retire_fails_while_containers_run(machine: Machine) -> None:
    cluster = sample.plain("rke2", data_directories=sample.DataDirectories(k8s_distro="/data/rke2"))
    shim = f"{machine.root}/data/rke2/data/v1/bin/containerd-shim-runc-v2 -namespace k8s.io"
    machine.program("ps", f"#!/bin/sh\necho '  1 /sbin/init'\necho ' 12 {shim}'\necho ' 13 {shim}'\n")
    machine.program("sleep", "#!/bin/sh\n")
    done = machine.apply(render.retire(cluster, sample.host("server")))
    assert done.returncode != 0
    assert "containers of rke2 still run: 12 13" in done.stderr
    machine.program("ps", f"#!/bin/sh\necho ' 1 /sbin/init'\necho ' 14 grep {shim}'\n")
    assert machine.apply(render.retire(cluster, sample.host("server"))).returncode == 0


# ---- the files themselves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("distro", sample.VERSIONS)
def test_every_script_is_valid_shell(distro: str, tmp_path: Path) -> None:
    cluster = sample.rich(distro)
    for content in (init(cluster), render.retire(cluster, sample.host("server"))):
        plan = plans.read(content)
        for one in (*plan.instructions, *plan.periodic):
            subprocess.run([one.command, "-n", *one.args], check=True, timeout=LIMIT_SECONDS)


def test_host_tool_parses_with_python_3_9() -> None:
    ast.parse(files(distros).joinpath("host_tool.py").read_text("utf-8"), feature_version=(3, 9))
