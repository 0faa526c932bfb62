"""deploy/: what it says is what the program takes, and nothing in it asks for more than it must.

No engine for containers is here: of the Containerfile is shown that it can be built from this tree as far as its text
goes, not that it was.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import remuda
from remuda.access import roles
from remuda.cli.manager import command as manager
from remuda.clusterctl import manifest
from remuda.clusterctl.manifest import ManifestOptions
from tests.lab import commands
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.missing import missing
from tests.unit.test_examples import ROOT

DEPLOY = ROOT / "deploy"
WANTED = ManifestOptions(image=f"{manifest.IMAGE}:v{remuda.__version__}", server_url=manifest.SERVER_URL)

Json = dict[str, Any]


def of_kind(kind: str, wanted: ManifestOptions = WANTED) -> list[Json]:
    return [one for one in yaml.safe_load_all(manifest.render(wanted)) if one["kind"] == kind]


def container_of(wanted: ManifestOptions = WANTED) -> Json:
    (deployment,) = of_kind("Deployment", wanted)
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


# ---- the manifest ----------------------------------------------------------------------------------------------------


def test_shown_manifest_matches_rendered_manifest() -> None:
    assert (DEPLOY / "kubernetes.yaml").read_text() == manifest.render(WANTED)


def test_deployment_arguments_are_valid_and_ports_match() -> None:
    container = container_of()
    name, *arguments = container["args"]
    with manager.make_context(name, arguments) as context:
        assert context.params["controllers"] == ()  # all
        assert context.params["leader_elect"]
        assert context.params["server_url"] == WANTED.server_url
        assert context.params["job_image"] == WANTED.image == container["image"]
        listens = {context.params[f"{what}_listen"][1] for what in ("nodes", "webhook", "health")}
    assert listens == {one["containerPort"] for one in container["ports"]}
    targets = {port["targetPort"] for one in of_kind("Service") for port in one["spec"]["ports"]}
    assert targets <= listens


def test_services_select_the_deployment_pods() -> None:
    (deployment,) = of_kind("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert [one["spec"]["selector"] for one in of_kind("Service")] == [labels, labels]
    assert [one["spec"].get("type") for one in of_kind("Service", _with(service_type="NodePort"))] == ["NodePort", None]


def test_service_account_is_bound_to_the_tested_cluster_roles() -> None:
    (deployment,) = of_kind("Deployment")
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    assert [one["metadata"]["name"] for one in of_kind("ServiceAccount")] == [account]
    for binding in (*of_kind("ClusterRoleBinding"), *of_kind("RoleBinding")):
        assert [(one["kind"], one["name"]) for one in binding["subjects"]] == [("ServiceAccount", account)]
    held = [
        one for one in yaml.safe_load_all((ROOT / "examples/rbac.yaml").read_text()) if one["kind"] == "ClusterRole"
    ]
    own = [one for one in held if not one["metadata"]["name"].endswith("-simulator")]
    assert of_kind("ClusterRole") == [*own, *roles.cluster_roles()]


def test_deployment_meets_restricted_pod_security_standard() -> None:
    (namespace,) = of_kind("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    (deployment,) = of_kind("Deployment", _with(tls_secret="cert", artefacts_claim="files"))
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    sources = {key for volume in pod["volumes"] for key in volume if key != "name"}
    assert sources == {"emptyDir", "secret", "persistentVolumeClaim"}


def test_custom_certificate_and_artefacts_are_mounted_at_option_paths() -> None:
    container = container_of(_with(tls_secret="cert", artefacts_claim="files"))
    name, *arguments = container["args"]
    places = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
    with manager.make_context(name, arguments) as context:
        for option, volume in (("tls_cert", "tls"), ("tls_key", "tls"), ("server_ca", "tls")):
            assert places[str(context.params[option].parent)] == volume
        assert places[str(context.params["artefacts"])] == "artefacts"


def _with(**fields: str) -> ManifestOptions:
    return ManifestOptions(image="i", server_url="https://s", **fields)


# ---- the service -----------------------------------------------------------------------------------------------------


def test_systemd_unit_command_is_valid() -> None:
    (line,) = re.findall(r"^ExecStart=/opt/remuda/bin/(.*)$", (DEPLOY / "remuda.service").read_text(), re.MULTILINE)
    (options,) = re.findall(r"^#\s+REMUDA_OPTIONS=(.*)$", (DEPLOY / "remuda.service").read_text(), re.MULTILINE)
    commands.check(line.replace("${STATE_DIRECTORY}", "/var/lib/remuda").replace("$REMUDA_OPTIONS", options))


@pytest.mark.parametrize("dropped_in", [False, True])
def test_systemd_unit_passes_systemd_analyze(tmp_path: Path, dropped_in: bool) -> None:
    if shutil.which("systemd-analyze") is None:
        missing("the unit is judged by systemd-analyze, which is not here")
    unit = tmp_path / "remuda.service"
    unit.write_text((DEPLOY / "remuda.service").read_text().replace("/opt/remuda/bin/remuda", "/bin/true"))
    if dropped_in:
        (tmp_path / "remuda.service.d").mkdir()
        shutil.copy(DEPLOY / "nspawn.conf", tmp_path / "remuda.service.d")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nspawn_drop_in_overrides_every_sandbox_setting() -> None:
    fences = _settings("remuda.service", after="UMask")
    assert set(_settings("nspawn.conf")) >= fences - {"RemoveIPC"}


def _settings(name: str, after: str = "") -> set[str]:
    found = re.findall(r"^([A-Z]\w+)=", (DEPLOY / name).read_text(), re.MULTILINE)
    return set(found[found.index(after) + 1 : found.index("WantedBy")] if after else found)


# ---- the image -------------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def test_image_sources_exist_and_pass_dockerignore() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [words.split()[:-1] for what, words in instructions() if what == "COPY" and "--from=" not in words]
    for source in (one for sources in copied for one in sources):
        assert (ROOT / source).exists()
        assert source in allowed
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"], "pyproject.toml", "src"} == set(allowed)
    assert "aws" in project["optional-dependencies"]


def test_image_runs_manager_as_the_deployment_user() -> None:
    found = dict(instructions())
    (deployment,) = of_kind("Deployment")
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert found["USER"] == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert json.loads(found["ENTRYPOINT"]) == container_of()["command"]
    assert [what for what, _ in instructions()][-1] == "CMD"
    stages = [words for what, words in instructions() if what == "FROM"]
    assert stages == ["${PYTHON} AS build", "${PYTHON}"]
    assert not re.search(r"(?i)password|secret|token|api.?key|ADD http", (DEPLOY / "Containerfile").read_text())
    text = (DEPLOY / "Containerfile").read_text()
    (shown,) = re.findall(r"^#\s+(up --listen .*)$", text, re.MULTILINE)
    commands.check(f"remuda {shown}")
