"""The real kubectl as people use it. Every test runs on the real server too: what is asserted is what is true there."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Server, require_peer
from tests.lab.limits import LIMIT_SECONDS

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: mounts.{tag}.example.com}
spec:
  group: {tag}.example.com
  scope: Namespaced
  names: {plural: mounts, singular: mount, kind: Mount, shortNames: [mo], categories: [herd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Coat, type: string, jsonPath: .spec.coat}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Brand, type: string, jsonPath: .spec.brand, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        description: A horse kept ready.
        properties:
          spec:
            type: object
            required: [coat]
            properties:
              coat: {type: string, description: The colour of its coat., enum: [bay, grey]}
              brand: {type: string}
              replicas: {type: integer}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
"""


class Kubectl:
    def __init__(self, path: Path, server: Server, home: Path, namespace: str) -> None:
        self._path = path
        self._kubeconfig = server.kubeconfig
        self._home = home
        self.namespace = namespace
        self.server = server

    def run(self, *words: str, stdin: str = "", ok: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self._path, "--kubeconfig", self._kubeconfig, "--cache-dir", self._home / "cache", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=2 * LIMIT_SECONDS,
            env={**os.environ, "HOME": str(self._home), "KUBECTL_EXTERNAL_DIFF": "diff -u -N"},
        )
        if ok and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def __call__(self, *words: str, stdin: str = "", ok: bool = True) -> str:
        return self.run("-n", self.namespace, *words, stdin=stdin, ok=ok).stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json"))

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                self._path,
                "--kubeconfig",
                self._kubeconfig,
                "--cache-dir",
                self._home / "cache",
                "-n",
                self.namespace,
                *words,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HOME": str(self._home)},
        )


@pytest.fixture(scope="session", params=["ours", "upstream"])
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    (path,) = require_peer("kubectl")
    server: Server = request.getfixturevalue(request.param)
    return Kubectl(path, server, tmp_path_factory.mktemp(f"kubectl-{request.param}"), "default")


@pytest.fixture(scope="session")
def tag() -> str:
    return "t" + secrets.token_hex(3)


@pytest.fixture(scope="session")
def custom(tool: Kubectl, tag: str) -> str:
    """A custom kind, established; its plural with the group."""
    tool.run("apply", "-f", "-", stdin=CRD.replace("{tag}", tag))
    tool.run("wait", "--for=condition=Established", f"crd/mounts.{tag}.example.com", f"--timeout={LIMIT_SECONDS:.0f}s")
    return f"mounts.{tag}.example.com"


@pytest.fixture
def kubectl(tool: Kubectl) -> Iterator[Kubectl]:
    """kubectl in a namespace of its own."""
    namespace = f"k-{secrets.token_hex(3)}"
    tool.run("create", "namespace", namespace)
    mine = Kubectl(tool._path, tool.server, tool._home, namespace)
    yield mine
    tool.run("delete", "namespace", namespace, "--wait=false", ok=False)


def mount(tag: str, name: str = "dusty", coat: str = "bay", **more: Any) -> str:
    spec = {"coat": coat, **more}
    body = {"apiVersion": f"{tag}.example.com/v1", "kind": "Mount", "metadata": {"name": name}, "spec": spec}
    return json.dumps(body)


def config_map(data: dict[str, str], name: str = "settings") -> str:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})


DEPLOYMENT = json.dumps(
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx:1", "ports": [{"containerPort": 80}]}]},
            },
        },
    }
)


def eventually(ask: Callable[[], str]) -> str:
    """The first answer that is not empty: the real server publishes a new kind's OpenAPI a little later."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (answer := ask()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return answer


class TestKnowingWhatThereIs:
    def test_version_reports_server_version(self, tool: Kubectl) -> None:
        found = json.loads(tool("version", "-o", "json"))
        assert found["serverVersion"]["gitVersion"].startswith("v1.36")

    def test_api_resources_lists_built_in_and_custom_kinds(self, tool: Kubectl, custom: str) -> None:
        lines = {line.split()[0]: line for line in tool("api-resources").splitlines()[1:]}
        assert re.split(r"\s+", lines["pods"])[1:5] == ["po", "v1", "true", "Pod"]
        assert "Mount" in lines["mounts"]
        wide = tool("api-resources", "--api-group=apps", "-o", "wide")
        assert "create,delete,deletecollection,get,list,patch,update,watch" in wide
        names = tool("api-resources", "--categories=herd", "-o", "name").split()
        assert custom in names

    def test_api_versions_lists_served_versions(self, tool: Kubectl) -> None:
        found = tool("api-versions").split()
        assert {"v1", "apps/v1", "rbac.authorization.k8s.io/v1", "apiextensions.k8s.io/v1"} <= set(found)

    def test_explain_shows_built_in_kind(self, tool: Kubectl) -> None:
        text = tool("explain", "deployment.spec.template.spec.containers")
        assert "KIND:       Deployment" in text
        assert re.search(r"^\s+image\s+<string>", text, re.MULTILINE)
        assert re.search(r"^\s+ports\s+<\[\]ContainerPort>", text, re.MULTILINE)
        assert re.search(r"^\s+name\s+<string> -required-", text, re.MULTILINE)

    def test_explain_shows_custom_kind(self, tool: Kubectl, custom: str) -> None:
        words = ("explain", f"{custom.split('.')[0]}.spec.coat", f"--api-version={custom.partition('.')[2]}/v1")
        text = eventually(lambda: tool(*words, ok=False))
        assert "The colour of its coat." in text
        assert re.search(r"ENUM:\s+bay\s+grey\s", text)

    def test_explain_recursive_lists_nested_fields(self, tool: Kubectl) -> None:
        assert "matchLabels" in tool("explain", "networkpolicy", "--recursive")

    def test_get_raw_returns_path_content(self, tool: Kubectl) -> None:
        assert tool("get", "--raw", "/healthz") == "ok"
        assert json.loads(tool("get", "--raw", "/api/v1/namespaces/default"))["kind"] == "Namespace"


class TestMakingAndChanging:
    def test_create_rejects_existing_object(self, kubectl: Kubectl) -> None:
        assert "configmap/settings created" in kubectl("create", "-f", "-", stdin=config_map({"a": "1"}))
        again = kubectl.run("-n", kubectl.namespace, "create", "-f", "-", stdin=config_map({}), ok=False)
        assert 'configmaps "settings" already exists' in again.stderr

    def test_create_subcommands_create_objects(self, kubectl: Kubectl) -> None:
        kubectl("create", "configmap", "c", "--from-literal=a=b")
        kubectl("create", "secret", "generic", "s", "--from-literal=password=hunter2")
        kubectl("create", "serviceaccount", "sa")
        kubectl("create", "deployment", "d", "--image=nginx:1")
        kubectl("create", "job", "j", "--image=busybox:1", "--", "true")
        kubectl("create", "role", "r", "--verb=get", "--resource=pods")
        kubectl("create", "rolebinding", "rb", "--role=r", "--serviceaccount=default:default")
        assert kubectl.json("get", "secret", "s")["data"] == {"password": "aHVudGVyMg=="}
        job = kubectl.json("get", "job", "j")
        assert job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] == job["metadata"]["uid"]

    def test_apply_merges_three_ways(self, kubectl: Kubectl) -> None:
        assert "created" in kubectl("apply", "-f", "-", stdin=config_map({"a": "1", "b": "2"}))
        assert "unchanged" in kubectl("apply", "-f", "-", stdin=config_map({"a": "1", "b": "2"}))
        assert "configured" in kubectl("apply", "-f", "-", stdin=config_map({"a": "1"}))
        assert kubectl.json("get", "cm", "settings")["data"] == {"a": "1"}

    def test_apply_a_deployment_merges_containers(self, kubectl: Kubectl) -> None:
        kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
        kubectl("set", "image", "deployment/web", "web=nginx:2")
        sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "log", "image": "busybox:1"}]}}}}
        kubectl("patch", "deployment", "web", "-p", json.dumps(sidecar))
        changed = DEPLOYMENT.replace('"replicas": 2', '"replicas": 3')
        assert "configured" in kubectl("apply", "-f", "-", stdin=changed)
        found = kubectl.json("get", "deployment", "web")["spec"]
        assert found["replicas"] == 3
        assert {c["name"]: c["image"] for c in found["template"]["spec"]["containers"]} == {
            "web": "nginx:1",
            "log": "busybox:1",
        }

    def test_apply_server_side_detects_and_forces_conflicts(self, kubectl: Kubectl) -> None:
        done = kubectl("apply", "--server-side", "-f", "-", stdin=config_map({"a": "1"}))
        assert "serverside-applied" in done
        clash = kubectl.run(
            "-n", kubectl.namespace, "apply", "--server-side", "--field-manager=rival", "-f", "-",
            stdin=config_map({"a": "2"}), ok=False,
        )  # fmt: skip
        assert clash.returncode != 0
        assert 'conflict with "kubectl"' in clash.stderr
        kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=rival",
            "-f",
            "-",
            stdin=config_map({"a": "2"}),
        )
        fields = kubectl.json("get", "cm", "settings", "--show-managed-fields")["metadata"]["managedFields"]
        assert {(f["manager"], f["operation"]) for f in fields} == {("rival", "Apply")}

    def test_apply_prunes_by_label(self, kubectl: Kubectl) -> None:
        one = json.loads(config_map({}, "one"))
        two = json.loads(config_map({}, "two"))
        for each in (one, two):
            each["metadata"]["labels"] = {"set": "x"}
        bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": [one, two]})
        kubectl("apply", "-f", "-", stdin=bundle)
        pruned = kubectl(
            "apply", "--prune", "-l", "set=x", "--prune-allowlist=core/v1/ConfigMap", "-f", "-", stdin=json.dumps(one)
        )
        assert "configmap/two pruned" in pruned

    def test_diff_exit_code_shows_difference(self, kubectl: Kubectl) -> None:
        kubectl("apply", "-f", "-", stdin=config_map({"a": "1"}))
        same = kubectl.run("-n", kubectl.namespace, "diff", "-f", "-", stdin=config_map({"a": "1"}), ok=False)
        assert same.returncode == 0
        other = kubectl.run("-n", kubectl.namespace, "diff", "-f", "-", stdin=config_map({"a": "9"}), ok=False)
        assert other.returncode == 1
        assert '+  a: "9"' in other.stdout
        server_side = kubectl.run(
            "-n",
            kubectl.namespace,
            "diff",
            "--server-side",
            "--force-conflicts",
            "-f",
            "-",
            stdin=config_map({"a": "8"}),
            ok=False,
        )
        assert server_side.returncode == 1

    @pytest.mark.parametrize(
        ("kind", "patch"),
        [
            ("json", '[{"op": "add", "path": "/data/b", "value": "2"}]'),
            ("merge", '{"data": {"b": "2"}}'),
            ("strategic", '{"data": {"b": "2"}}'),
        ],
    )
    def test_patch_types_change_object(self, kubectl: Kubectl, kind: str, patch: str) -> None:
        kubectl("create", "-f", "-", stdin=config_map({"a": "1"}))
        assert "patched" in kubectl("patch", "cm", "settings", "--type", kind, "-p", patch)
        assert "no change" in kubectl("patch", "cm", "settings", "--type", "merge", "-p", '{"data": {"b": "2"}}')
        assert kubectl.json("get", "cm", "settings")["data"] == {"a": "1", "b": "2"}

    def test_patch_changes_status_subresource(self, kubectl: Kubectl, custom: str, tag: str) -> None:
        kubectl("create", "-f", "-", stdin=mount(tag))
        status = '{"status": {"phase": "Rested"}}'
        kubectl("patch", custom, "dusty", "--subresource=status", "--type=merge", "-p", status)
        assert kubectl.json("get", custom, "dusty")["status"] == {"phase": "Rested"}

    def test_replace_updates_and_recreates_object(self, kubectl: Kubectl) -> None:
        kubectl("create", "-f", "-", stdin=config_map({"a": "1"}))
        assert "replaced" in kubectl("replace", "-f", "-", stdin=config_map({"a": "2"}))
        assert "replaced" in kubectl("replace", "--force", "-f", "-", stdin=config_map({"a": "3"}))

    def test_label_and_annotate_change_metadata(self, kubectl: Kubectl) -> None:
        kubectl("create", "-f", "-", stdin=config_map({}))
        kubectl("label", "cm", "settings", "team=ranch")
        kubectl("annotate", "cm", "settings", "note=hello world")
        refused = kubectl.run("-n", kubectl.namespace, "label", "cm", "settings", "team=other", ok=False)
        assert refused.returncode != 0
        assert "settings" in kubectl("get", "cm", "-l", "team=ranch", "-o", "name")
        kubectl("label", "cm", "settings", "team-")
        assert kubectl("get", "cm", "-l", "team=ranch", "-o", "name") == ""

    def test_scale_changes_replicas(self, kubectl: Kubectl, custom: str, tag: str) -> None:
        kubectl("create", "-f", "-", stdin=DEPLOYMENT)
        assert "scaled" in kubectl("scale", "deployment/web", "--replicas=5")
        assert kubectl.json("get", "deployment", "web")["spec"]["replicas"] == 5
        mismatch = kubectl.run(
            "-n", kubectl.namespace, "scale", "deployment/web", "--current-replicas=9", "--replicas=1", ok=False
        )
        assert mismatch.returncode != 0
        kubectl("create", "-f", "-", stdin=mount(tag, replicas=1))
        kubectl("scale", f"{custom}/dusty", "--replicas=4")
        assert kubectl.json("get", custom, "dusty")["spec"]["replicas"] == 4

    def test_apply_reports_invalid_fields(self, kubectl: Kubectl, custom: str, tag: str) -> None:
        def complaint(body: str, *words: str) -> str:
            return kubectl.run("-n", kubectl.namespace, "apply", *words, "-f", "-", stdin=body, ok=False).stderr

        typo = json.loads(mount(tag))
        typo["spec"]["coatt"] = "bay"
        assert 'unknown field "spec.coatt"' in complaint(json.dumps(typo))
        assert 'unknown field "spec.coatt"' in complaint(json.dumps(typo), "--validate=warn")
        assert 'Unsupported value: "plaid": supported values: "bay", "grey"' in complaint(mount(tag, coat="plaid"))
        assert "spec.coat: Required value" in complaint(mount(tag).replace('"coat": "bay"', ""))
        assert "no matches for kind" in complaint('{"apiVersion": "nope/v1", "kind": "X", "metadata": {"name": "x"}}')

    def test_dry_run_server_stores_nothing(self, kubectl: Kubectl) -> None:
        assert "created (server dry run)" in kubectl("apply", "--dry-run=server", "-f", "-", stdin=config_map({}))
        assert kubectl("get", "cm", "settings", "--ignore-not-found") == ""


class TestLooking:
    def test_get_prints_table_columns(self, kubectl: Kubectl, custom: str, tag: str) -> None:
        kubectl("create", "-f", "-", stdin=mount(tag, brand="R"))
        header, row = kubectl("get", custom).splitlines()
        assert header.split() == ["NAME", "COAT", "READY"]
        assert row.split() == ["dusty", "bay"]
        header, row = kubectl("get", custom, "-o", "wide").splitlines()
        assert header.split() == ["NAME", "COAT", "READY", "BRAND"]
        kubectl("create", "-f", "-", stdin=DEPLOYMENT)
        header, row = kubectl("get", "deploy", "-o", "wide").splitlines()
        assert header.split() == ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]
        assert row.split()[:4] == ["web", "0/2", "0", "0"]
        assert row.split()[5:] == ["web", "nginx:1", "app=web"]

    def test_get_supports_output_formats(self, kubectl: Kubectl) -> None:
        kubectl("create", "-f", "-", stdin=config_map({"a": "1"}))
        assert 'data:\n  a: "1"' in kubectl("get", "cm", "settings", "-o", "yaml")
        assert kubectl("get", "cm", "settings", "-o", "jsonpath={.data.a}") == "1"
        assert kubectl("get", "cm", "settings", "-o", "go-template={{.metadata.name}}") == "settings"
        assert "settings   map[a:1]" in kubectl(
            "get", "cm", "settings", "-o", "custom-columns=N:.metadata.name,D:.data"
        )
        assert "configmap/settings" in kubectl("get", "cm", "-o", "name").split()

    def test_get_supports_selectors_sorting_and_chunks(self, kubectl: Kubectl) -> None:
        for n in range(5):
            kubectl("create", "configmap", f"c{n}")
        names = kubectl("get", "cm", "-o", "name", "--chunk-size=2").split()
        assert [n for n in names if "/c" in n] == [f"configmap/c{n}" for n in range(5)]
        assert kubectl("get", "cm", "--field-selector=metadata.name=c3", "-o", "name").strip() == "configmap/c3"
        assert "c0" in kubectl("get", "cm", "--sort-by=.metadata.name", "--no-headers")

    def test_get_all_lists_deployment(self, kubectl: Kubectl) -> None:
        kubectl("create", "-f", "-", stdin=DEPLOYMENT)
        assert "deployment.apps/web" in kubectl("get", "all")

    def test_get_watch_prints_events_in_order(self, kubectl: Kubectl) -> None:
        kubectl("create", "configmap", "c", "--from-literal=a=1")
        watching = kubectl.start(
            "get", "cm", "-w", "--output-watch-events", "--no-headers", "--field-selector=metadata.name=c"
        )
        assert watching.stdout is not None
        try:
            seen = [watching.stdout.readline().split()[:3]]  # its list is done: it misses nothing that comes now
            kubectl("patch", "cm", "c", "-p", '{"data": {"b": "2"}}')
            kubectl("delete", "cm", "c")
            seen += [watching.stdout.readline().split()[:3] for _ in range(2)]
        finally:
            watching.kill()
            watching.wait()
        assert seen == [["ADDED", "c", "1"], ["MODIFIED", "c", "2"], ["DELETED", "c", "2"]]

    def test_describe_prints_object_details(self, kubectl: Kubectl, custom: str, tag: str) -> None:
        kubectl("create", "-f", "-", stdin=DEPLOYMENT)
        kubectl("create", "secret", "generic", "s", "--from-literal=password=hunter2")
        kubectl("create", "-f", "-", stdin=mount(tag))
        assert "Image:" in kubectl("describe", "deployment", "web")
        assert "password:  7 bytes" in kubectl("describe", "secret", "s")
        assert "Coat:  bay" in kubectl("describe", custom, "dusty")
        assert "Name:         " + kubectl.namespace in kubectl("describe", "namespace", kubectl.namespace)

    def test_events_lists_events_of_object(self, kubectl: Kubectl) -> None:
        kubectl("create", "-f", "-", stdin=config_map({}))
        uid = kubectl.json("get", "cm", "settings")["metadata"]["uid"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "settings.1", "namespace": kubectl.namespace},
            "involvedObject": {
                "apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "namespace": kubectl.namespace, "uid": uid,
            },
            "reason": "Noticed",
            "message": "somebody looked",
            "type": "Normal",
            "source": {"component": "tests"},
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "count": 1,
        }  # fmt: skip
        kubectl("create", "-f", "-", stdin=json.dumps(event))
        listed = kubectl("events", "--for", "configmap/settings")
        assert "Noticed" in listed
        assert "somebody looked" in listed
        assert "Noticed" in kubectl("get", "events")

    def test_wait_returns_when_condition_is_met(self, kubectl: Kubectl, custom: str, tag: str) -> None:
        kubectl("create", "-f", "-", stdin=mount(tag))
        waiting = kubectl.start("wait", f"{custom}/dusty", "--for=condition=Ready", f"--timeout={LIMIT_SECONDS:.0f}s")
        ready = '{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}'
        kubectl("patch", custom, "dusty", "--subresource=status", "--type=merge", "-p", ready)
        out, err = waiting.communicate(timeout=LIMIT_SECONDS)
        assert waiting.returncode == 0, err
        assert "condition met" in out
        kubectl("wait", f"{custom}/dusty", "--for=jsonpath={.spec.coat}=bay", f"--timeout={LIMIT_SECONDS:.0f}s")
        going = kubectl.start("wait", f"{custom}/dusty", "--for=delete", f"--timeout={LIMIT_SECONDS:.0f}s")
        kubectl("delete", custom, "dusty")
        assert going.wait(LIMIT_SECONDS) == 0
        for pipe in (going.stdout, going.stderr):
            assert pipe is not None
            pipe.close()


class TestRemoving:
    @pytest.mark.parametrize("policy", ["background", "foreground", "orphan"])
    def test_delete_cascade_policies_handle_dependents(
        self, kubectl: Kubectl, custom: str, tag: str, policy: str
    ) -> None:
        kubectl("create", "-f", "-", stdin=mount(tag))
        owner = kubectl.json("get", custom, "dusty")
        saddle = json.loads(config_map({}, "saddle"))
        saddle["metadata"]["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": "Mount",
                "name": "dusty",
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
        ]
        kubectl("create", "-f", "-", stdin=json.dumps(saddle))
        if policy == "orphan":
            # The collector frees only what it knows. It learns of config maps in their order, so it knows the saddle
            # once it has collected a later one, whose owner never existed.
            stray = json.loads(config_map({}, "stray"))
            nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": secrets.token_hex(8)}
            stray["metadata"]["ownerReferences"] = [nobody]
            kubectl("create", "-f", "-", stdin=json.dumps(stray))
            kubectl("wait", "cm/stray", "--for=delete", f"--timeout={LIMIT_SECONDS:.0f}s")
        kubectl("delete", custom, "dusty", f"--cascade={policy}", f"--timeout={LIMIT_SECONDS:.0f}s")
        assert kubectl("get", custom, "dusty", "--ignore-not-found") == ""
        if policy == "orphan":
            assert "ownerReferences" not in kubectl.json("get", "cm", "saddle")["metadata"]
        else:
            kubectl("wait", "cm/saddle", "--for=delete", f"--timeout={LIMIT_SECONDS:.0f}s")

    def test_delete_by_label_and_all(self, kubectl: Kubectl) -> None:
        for name, team in (("a", "x"), ("b", "y"), ("c", "y")):
            kubectl("create", "configmap", name)
            kubectl("label", "cm", name, f"team={team}")
        kubectl("delete", "cm", "-l", "team=y")
        assert "configmap/a" in kubectl("get", "cm", "-o", "name")
        kubectl("delete", "cm", "--all")
        assert "configmap/a" not in kubectl("get", "cm", "-o", "name")

    def test_namespace_deletion_removes_contents(self, kubectl: Kubectl) -> None:
        kubectl("create", "configmap", "c")
        kubectl.run("delete", "namespace", kubectl.namespace, f"--timeout={LIMIT_SECONDS:.0f}s")
        assert kubectl("get", "cm", "-o", "name") == ""


class TestWhoMay:
    def test_whoami_reports_user_and_impersonation(self, tool: Kubectl) -> None:
        found = json.loads(tool("auth", "whoami", "-o", "json"))
        assert "system:masters" in found["status"]["userInfo"]["groups"]
        as_jane = json.loads(tool("auth", "whoami", "-o", "json", "--as=jane", "--as-group=riders"))
        assert as_jane["status"]["userInfo"]["username"] == "jane"
        assert "riders" in as_jane["status"]["userInfo"]["groups"]

    def test_can_i_reflects_rbac(self, kubectl: Kubectl) -> None:
        assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
        assert kubectl("auth", "can-i", "create", "pods", "--as=jane", ok=False).strip() == "no"
        kubectl("create", "configmap", "c")
        kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
        kubectl("create", "rolebinding", "jane", "--role=reader", "--user=jane")
        assert kubectl("auth", "can-i", "list", "configmaps", "--as=jane").strip() == "yes"
        listed = kubectl("auth", "can-i", "--list", "--as=jane")
        assert re.search(r"^configmaps\s+\[\]\s+\[\]\s+\[get list\]", listed, re.MULTILINE)
        assert "configmap/c" in kubectl("get", "cm", "-o", "name", "--as=jane")
        refused = kubectl.run("-n", kubectl.namespace, "get", "secrets", "--as=jane", ok=False)
        assert 'secrets is forbidden: User "jane" cannot list resource "secrets" in API group ""' in refused.stderr
        assert f'in the namespace "{kubectl.namespace}"' in refused.stderr

    def test_auth_reconcile_creates_role(self, kubectl: Kubectl) -> None:
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "r", "namespace": kubectl.namespace},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
        }
        assert "reconciled" in kubectl("auth", "reconcile", "-f", "-", stdin=json.dumps(role))

    def test_create_token_authenticates_service_account(self, kubectl: Kubectl) -> None:
        kubectl("create", "serviceaccount", "robot")
        token = kubectl("create", "token", "robot", "--duration=10m").strip()
        assert token.count(".") == 2
        reply = kubectl.server.http("GET", "/apis/authentication.k8s.io/v1", token=token)
        assert reply.code == 200
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        who = kubectl.server.http("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, token=token)
        assert who.body["status"]["userInfo"]["username"] == f"system:serviceaccount:{kubectl.namespace}:robot"
        kubectl("delete", "serviceaccount", "robot")


class TestCordonAndEvict:
    def test_cordon_and_taint_change_node(self, kubectl: Kubectl) -> None:
        name = f"node-{secrets.token_hex(3)}"
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        kubectl("create", "-f", "-", stdin=json.dumps(node))
        kubectl("cordon", name)
        assert "SchedulingDisabled" in kubectl("get", "node", name)
        kubectl("uncordon", name)
        kubectl("taint", "node", name, "dedicated=x:NoSchedule")
        assert kubectl.json("get", "node", name)["spec"]["taints"][0]["key"] == "dedicated"
        kubectl("delete", "node", name)

    def test_eviction_deletes_pod(self, kubectl: Kubectl) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "x:1"}]},
        }
        kubectl("create", "-f", "-", stdin=json.dumps(pod))
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
        path = f"/api/v1/namespaces/{kubectl.namespace}/pods/p/eviction"
        assert kubectl.server.http("POST", path, eviction).code == 201
        assert kubectl("get", "pod", "p", "--ignore-not-found") == ""
