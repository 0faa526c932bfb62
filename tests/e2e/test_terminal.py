"""What a person meets on a terminal of eighty columns: a cluster made by questions, looked at, changed and deleted, and
Ctrl-C at each of these moments. `remuda up` runs as a process, and its one cluster has one host that is a process."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from tests.lab.clusters import FLEET_SECRETS, MACHINES, NAMESPACE, PROVISIONING, Fleet, is_ready
from tests.lab.rancher_manifests import FOLDER, MANIFESTS, Manifest
from tests.lab.terminal import COLUMNS, Session
from tests.lab.up import allow_local_addresses, eventually

COMMAND = (sys.executable, "-m", "remuda.cli.main")
CTRL_C = "\x03"
INTERRUPTED = 130
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_QUESTIONS = {"Name [prairie]: ": "", "Driver": "process", "Version": "", "Servers [1]: ": "", "Workers [1]: ": "0"}


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    made = Fleet()
    try:
        yield made
    finally:
        made.stop()


def session(fleet: Fleet, *words: str, **env: str) -> Session:
    return Session([*COMMAND, *words], env={"KUBECONFIG": str(fleet.kubeconfig), **env})


def shown(fleet: Fleet, *words: str, code: int = 0, **env: str) -> str:
    with session(fleet, *words, **env) as one:
        assert one.end() == code, one.shown
        return one.shown


def interrupt(one: Session) -> str:
    """Once it reads what is typed. What is said, and it says it without a traceback."""
    one.becomes_idle()
    one.type(CTRL_C)
    assert one.end() == INTERRUPTED, one.shown
    said = one.shown.rpartition("^C")[2]
    assert "Traceback" not in said
    assert "Warning" not in said
    return said


def answer(one: Session, questions: int) -> None:
    """So many of the questions that `create cluster` has."""
    for question, text in list(_QUESTIONS.items())[:questions]:
        one.until(question)
        one.type(f"{text}\n")


def too_wide(text: str) -> list[str]:
    return [line for line in _CONTROL.sub("", text).splitlines() if len(line) > COLUMNS]


@pytest.fixture(scope="module")
def interrupted_create(fleet: Fleet) -> str:
    """A cluster by questions, whose maker stops waiting for it. What was shown of that."""
    with session(fleet, "create", "cluster", "--wait") as one:
        answer(one, len(_QUESTIONS))
        one.until("Create it? [Y/n]: ")
        one.type("y\n")
        one.until("waiting until Cluster fleet-default/prairie is ready")
        interrupt(one)
        return one.shown


@pytest.fixture(scope="module")
def ready_cluster(fleet: Fleet, interrupted_create: str) -> str:
    """The same cluster, which has become ready by itself."""
    fleet.until(PROVISIONING, "prairie", is_ready)
    return "prairie"


# ---- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answered", range(len(_QUESTIONS) + 1))
def test_ctrl_c_at_create_cluster_prompt_creates_nothing(fleet: Fleet, answered: int) -> None:
    before = fleet.names(PROVISIONING)
    with session(fleet, "create", "cluster") as one:
        answer(one, answered)
        one.until([*_QUESTIONS, "Create it? [Y/n]: "][answered])
        assert "nothing was done" in interrupt(one)
        assert not too_wide(one.shown)
    assert fleet.names(PROVISIONING) == before


def test_invalid_answer_is_explained_and_prompt_repeats(fleet: Fleet) -> None:
    with session(fleet, "create", "cluster") as one:
        one.until("Name [prairie]: ")
        one.type("Big_Ranch\n")
        one.until("lower-case letters")
        one.until("Name [prairie]: ")
        interrupt(one)


# ---- waiting ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_during_create_wait_keeps_cluster_provisioning(interrupted_create: str, ready_cluster: str) -> None:
    said = interrupted_create.rpartition("^C")[2]
    assert "the controllers continue" in said
    assert "remuda describe cluster prairie -n fleet-default --watch" in said
    assert not too_wide(interrupted_create)


def test_ctrl_c_during_apply_wait_keeps_applied_cluster(fleet: Fleet, interrupted_create: str, tmp_path: Path) -> None:
    """A version that nobody has artefacts of, for a cluster of its own without machines: it is never ready."""
    manifest = tmp_path / "cabin.yaml"
    manifest.write_text((FOLDER / "k3s-custom-minimal.yaml").read_text())
    with session(fleet, "apply", "-f", str(manifest), "--wait") as one:
        one.until("waiting until Cluster fleet-default/cabin is ready")
        assert "the controllers continue" in interrupt(one)
        assert "cluster.provisioning.cattle.io/cabin created" in _CONTROL.sub("", one.shown)
    assert "cabin" in fleet.names(PROVISIONING)


@pytest.mark.parametrize(
    "words",
    ["events --watch", "get clusters --watch", "describe cluster prairie --watch", "get machines -o yaml --watch"],
)
def test_ctrl_c_ends_watch_commands_silently(fleet: Fleet, ready_cluster: str, words: str) -> None:
    with session(fleet, *words.split()) as one:
        one.until(ready_cluster)
        assert _CONTROL.sub("", interrupt(one)).strip() == "", "nothing was asked for, so there is nothing to be told"


def test_ctrl_c_ends_followed_log_silently(fleet: Fleet) -> None:
    """Of a Job that does not end: it speaks to a server that never answers."""
    allow_local_addresses(fleet, "existing")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        key = asyncssh.generate_private_key("ssh-ed25519").export_private_key().decode()
        secret = {"metadata": {"name": "key", "namespace": NAMESPACE}, "stringData": {"privateKey": key}}
        assert fleet.http("POST", FLEET_SECRETS, {"apiVersion": "v1", "kind": "Secret", **secret}).code == 201
        address = f"address=127.0.0.1:{silent.getsockname()[1]}"
        driver = ("--driver", "existing", "--credential", "key", "--option", address, "--option", "timeoutSeconds=300")
        created = fleet.remuda(
            *("create", "cluster", "far", "--workers", "0", "--kubernetes-version", "v1.36.4+k3s1"), *driver
        )
        assert created.returncode == 0, created.stderr
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        eventually(
            lambda: any(one["status"].get("phase") == "Running" for one in fleet.items(pods)), lambda: fleet.diagnosis
        )
        with session(fleet, "logs", "cluster", "far", "--follow") as one:
            one.until("requesting server")
            assert _CONTROL.sub("", interrupt(one)).strip() == ""
        assert fleet.remuda("delete", "cluster", "far", "--no-wait").returncode == 0


# ---- looking ---------------------------------------------------------------------------------------------------------

_LOOKS = [
    "get clusters",
    "get machines",
    "get secrets",
    "get nodedrivers",
    "describe cluster prairie",
    "why prairie",
    "why prairie --timeline",
    "events --cluster prairie",
    "logs cluster prairie",
    "drivers list",
    "drivers describe amazonec2",
    "leaks",
    "version",
    "user list",
    "--help",
]


@pytest.mark.parametrize("words", _LOOKS)
def test_output_fits_terminal_width(fleet: Fleet, ready_cluster: str, words: str) -> None:
    text = shown(fleet, *words.split())
    assert text.strip()
    assert not too_wide(text)


def test_plan_output_fits_terminal_width(fleet: Fleet, ready_cluster: str, tmp_path: Path) -> None:
    manifest = tmp_path / "prairie.yaml"
    made = fleet.remuda("create", "cluster", ready_cluster, "--workers", "0", "--driver", "process", "--dry-run").stdout
    manifest.write_text(made.replace("name: servers\n", "name: servers\n      labels: {tier: web}\n", 1))
    text = shown(fleet, "plan", "-f", str(manifest))
    assert "reconfigure" in text
    assert "node-label" in text, "what is too long is told beneath, and not cut"
    assert not too_wide(text)


@pytest.mark.parametrize("words", ["describe cluster prairie", "apply -f {typo} --dry-run"])
def test_colours_are_used_only_on_terminals_without_no_color(fleet: Fleet, ready_cluster: str, words: str) -> None:
    given = words.format(typo=FOLDER / "warned-typo.yaml").split()
    assert COLOUR.search(shown(fleet, *given))
    assert "\x1b" not in shown(fleet, *given, NO_COLOR="1")
    piped = fleet.remuda(*given)
    assert "\x1b" not in piped.stdout + piped.stderr


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "advice"),
    [
        ("get clutsers", 1, "clusters"),
        ("get cluster nowhere", 1, "remuda get clusters"),
        ("describe cluster nowhere", 1, "remuda get clusters"),
        ("events --cluster nowhere", 1, "remuda get clusters"),
        ("logs machine nowhere", 1, "remuda get machines"),
        ("create cluster prairie --workers 0", 1, "remuda describe cluster prairie"),
        ("create cluster meadow --driver wings", 1, "installed drivers: amazonec2"),
        ("create cluster meadow --option wings=2", 1, "remuda drivers describe process"),
        ("create cluster meadow --kubernetes-version 1.36", 2, "v1.36.4+k3s1"),
        ("create cluster meadow --kubernetes-version v9.9.9+nano1", 2, "--allow-unknown-version"),
        ("create cluster meadow --host 192.0.2.10 --credential key", 1, "--listen and --server-url"),
        ("get registration nowhere", 1, "remuda get clusters"),
        ("descrbe cluster prairie", 2, "did you mean"),
        ("get clusters --kubeconfig nowhere", 4, "remuda up"),
    ],
)
def test_cli_error_suggests_next_step(fleet: Fleet, ready_cluster: str, words: str, code: int, advice: str) -> None:
    text = shown(fleet, *words.split(), code=code)
    assert advice in " ".join(_CONTROL.sub("", text).split())
    assert "Traceback" not in text
    assert not too_wide(text)
    assert "meadow" not in fleet.names(PROVISIONING)


def test_registration_line_has_roles_and_the_servers_script(fleet: Fleet, ready_cluster: str) -> None:
    done = fleet.remuda("get", "registration", ready_cluster, "--role", "server")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert "/system-agent-install.sh | sudo sh -s - --server https://127.0.0.1:" in line
    assert line.endswith(" --etcd --controlplane")


# ---- manifests of Rancher --------------------------------------------------------------------------------------------

_HERE = ("amazonec2config", "secret")  # of kinds that are served without rancher-machine


def of_here(manifest: Manifest) -> bool:
    return all(obj["kind"] == "Cluster" or obj["kind"].lower() in _HERE for obj in manifest.objects)


@pytest.mark.parametrize("manifest", [one for one in MANIFESTS if of_here(one)], ids=lambda one: str(one.name))
def test_rancher_manifest_is_applied_or_rejected_with_expected_messages(fleet: Fleet, manifest: Manifest) -> None:
    """Those with machines in a cloud only as a dry run."""
    kinds = {str(obj["kind"]) for obj in manifest.objects}
    words = ["apply", "-f", str(FOLDER / f"{manifest.name}.yaml")]
    done = fleet.remuda(*words, *(["--dry-run"] if "Amazonec2Config" in kinds else []))
    name = str(manifest.cluster["metadata"]["name"])
    for sentence in (*manifest.warned, *manifest.refused):
        assert sentence in done.stderr
    if manifest.refused:
        assert done.returncode == 1
        assert "the server refused the manifest; nothing was applied" in done.stderr
        assert name not in fleet.names(PROVISIONING)
    else:
        assert done.returncode == 0, done.stderr
        assert f"cluster.provisioning.cattle.io/{name} " in done.stdout
        assert "Amazonec2Config" in kinds or name in fleet.names(PROVISIONING)


def test_chosen_rancher_manifests_cover_all_outcomes() -> None:
    chosen = [one for one in MANIFESTS if of_here(one)]
    assert {(bool(one.refused), bool(one.warned)) for one in chosen} >= {(True, False), (False, True), (False, False)}


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_ctrl_c_when_asked_whether_to_delete_deletes_nothing(fleet: Fleet, ready_cluster: str) -> None:
    with session(fleet, "delete", "cluster", ready_cluster) as one:
        one.until("Delete? [y/N]: ")
        assert "nothing was done" in interrupt(one)
    assert "deletionTimestamp" not in fleet.http("GET", f"{PROVISIONING}/{ready_cluster}").body["metadata"]


def test_ctrl_c_during_delete_wait_lets_deletion_continue(fleet: Fleet, ready_cluster: str) -> None:
    (machine,) = (name for name in fleet.names(MACHINES) if name.startswith(ready_cluster))
    with session(fleet, "delete", "cluster", ready_cluster) as one:
        one.until("Delete? [y/N]: ")
        one.type("y\n")
        one.until("waiting until Cluster fleet-default/prairie is deleted")
        assert "the controllers continue" in interrupt(one)
    fleet.until(MACHINES, machine, lambda obj: not obj)


def test_up_exits_cleanly_on_ctrl_c_and_next_run_keeps_objects(tmp_path: Path) -> None:
    words = [*COMMAND, "up", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    kubeconfig = {"KUBECONFIG": str(tmp_path / "data" / "admin.kubeconfig")}
    for outcome in ("created", "unchanged"):
        with Session(words) as up:
            up.until("remuda create cluster prairie --wait")  # what to do next
            apply = [*COMMAND, "apply", "-f", str(FOLDER / "k3s-custom-minimal.yaml")]
            applied = subprocess.run(
                apply, capture_output=True, text=True, env={**os.environ, **kubeconfig}, check=True
            )
            assert applied.stdout.split()[-1] == outcome
            up.type(CTRL_C)
            assert up.end() == 0, up.shown
            assert "Traceback" not in up.shown
