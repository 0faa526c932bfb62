"""`remuda up`: engine and controllers as one program, from its ready line to its end, whatever that is."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import Ended, Running, run, terminate
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import free_port
from tests.lab.up import eventually

KINDS = ("clusters", "machines", "machinesets", "machinedeployments", "machinehealthchecks", "machinedrainrules")
CLUSTERS = "/apis/cluster.x-k8s.io/v1beta2/namespaces/default/clusters"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Up(Running):
    command = "up"
    ready = re.compile(r"remuda ready at (https://\S+) after [0-9.]+ s, pid ([0-9]+), kubeconfig (\S+)\n", re.ASCII)

    def revisions(self) -> dict[str, str]:
        """Of everything of ours there is."""
        found = {}
        for path in (DEFINITIONS, CLUSTERS, "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers"):
            reply = self.http("GET", path)
            for item in reply.body["items"] if reply.code == 200 else ():
                found[f"{path}/{item['metadata']['name']}"] = item["metadata"]["resourceVersion"]
        return found

    def until(self, name: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The Cluster, as soon as that is true of it."""
        for line in self.stream(f"{CLUSTERS}?watch=1&fieldSelector=metadata.name%3D{name}"):
            found: dict[str, Any] = json.loads(line)["object"]
            if holds(found):
                return found
        raise AssertionError(f"never true: {self.http('GET', f'{CLUSTERS}/{name}')}\n{self.complaints}")


Start = Callable[..., Up]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as servers:

        def begin(data: Path, *flags: str) -> Up:
            up = Up(data, *flags)
            servers.callback(up.stop)
            return up

        yield begin


def cluster(name: str, **spec: Any) -> dict[str, Any]:
    ref = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "NobodysCluster", "name": name}
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"infrastructureRef": ref, **spec},
    }


def is_cared_for(found: dict[str, Any]) -> bool:
    told = {one["type"]: one for one in found.get("status", {}).get("conditions", ())}
    return "NobodysCluster" in told.get("InfrastructureReady", {}).get("message", "")


def assert_log_names_only_missing_provider(up: Up) -> None:
    assert [
        line for line in up.complaints.splitlines() if "is the provider of NobodysCluster installed?" not in line
    ] == []


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_first_start_serves_capi_kinds_and_runs_controllers(data: Path, start: Start) -> None:
    up = start(data)
    said = up.ready.fullmatch(up.line)
    assert said is not None
    assert int(said[2]) == up.pid
    assert Path(said[3]) == data / "admin.kubeconfig"
    for plural in KINDS:
        assert up.http("GET", f"/apis/cluster.x-k8s.io/v1beta2/{plural}").code == 200
    assert up.http("POST", CLUSTERS, cluster("c")).code == 201
    assert up.until("c", is_cared_for)["metadata"]["finalizers"] == ["cluster.cluster.x-k8s.io"]
    assert_log_names_only_missing_provider(up)


def test_invalid_cluster_is_rejected_by_admission(data: Path, start: Start) -> None:
    up = start(data)
    refused = up.http("POST", CLUSTERS, cluster("c", clusterNetwork={"pods": {"cidrBlocks": ["ten"]}}))
    assert refused.code == 422
    assert "must be a CIDR, such as 10.1.0.0/16" in refused.body["message"]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_restarted_up_resumes_without_needless_writes(data: Path, start: Start, ending: int) -> None:
    first = start(data)
    first.http("POST", CLUSTERS, cluster("before"))
    first.until("before", is_cared_for)
    code, said = first.signal(ending)
    assert (code, said) == ((-9 if ending == signal.SIGKILL else 0), "")
    assert_log_names_only_missing_provider(first)
    second = start(data)
    revisions = second.revisions()
    assert second.http("POST", CLUSTERS, cluster("after")).code == 201
    second.until("after", is_cared_for)
    assert {name: revision for name, revision in second.revisions().items() if name in revisions} == revisions
    terminate(second)


def test_shutdown_ends_watches_and_leaves_no_stray_files(data: Path, start: Start) -> None:
    up = start(data)
    connection = up.connect()
    connection.request("GET", f"{CLUSTERS}?watch=1")
    response = connection.getresponse()
    code, said = up.signal(signal.SIGTERM)
    assert (code, said, up.complaints) == (0, "", "")
    assert response.read() == b""
    connection.close()
    left = {path.name for path in data.iterdir() if not path.name.startswith("lab-")}
    assert left <= {"admin.kubeconfig", "job.key", "lock", "pki", "reserve", "state.db", "jobs", "hosts", "drivers"}


def refused(ended: Ended) -> str:
    assert (ended.code, ended.out) == (1, ""), ended
    [line] = ended.err.splitlines()
    return line


def test_unknown_controller_name_is_rejected(data: Path) -> None:
    said = refused(run("up", "--data-dir", data, "--listen", "127.0.0.1:0", "--controllers", "core,bogus"))
    assert said.startswith("remuda up: unknown controller or group bogus; the groups are core, providers")
    assert not data.exists()


def test_providers_only_serves_capi_kinds_without_reconciling_clusters(data: Path, start: Start) -> None:
    up = start(data, "--controllers", "providers")
    made = up.http("POST", CLUSTERS, cluster("c"))
    assert made.code == 201
    assert "finalizers" not in made.body["metadata"]
    version = made.body["metadata"]["resourceVersion"]
    assert list(up.stream(f"{CLUSTERS}?watch=1&timeoutSeconds=1&resourceVersion={version}")) == []
    assert up.signal(signal.SIGTERM)[:2] == (0, "")


def test_disabled_controllers_do_not_reconcile(data: Path, start: Start) -> None:
    up = start(data, "--controllers", "machine,machineset")
    made = up.http("POST", CLUSTERS, cluster("c"))
    assert made.code == 201
    assert "finalizers" not in made.body["metadata"]
    version = made.body["metadata"]["resourceVersion"]
    assert list(up.stream(f"{CLUSTERS}?watch=1&timeoutSeconds=1&resourceVersion={version}")) == []


def test_health_and_metrics_endpoints_respond_until_shutdown(data: Path, start: Start) -> None:
    address = f"127.0.0.1:{free_port()}"
    up = start(data, "--health-listen", address)
    up.http("POST", CLUSTERS, cluster("c"))
    up.until("c", is_cared_for)
    assert get(f"http://{address}/healthz") == (200, "ok")
    ready = f"http://{address}/readyz?verbose"  # kinds of drivers come a moment later
    eventually(lambda: get(ready) == (200, "[+]caches ok\n[+]watches ok\n"), lambda: get(ready)[1])
    code, text = get(f"http://{address}/metrics")
    assert code == 200
    assert re.search(r'controller_runtime_reconcile_total\{controller="cluster",result="[a-z_]+"\} [1-9]', text)
    assert 'remuda_writes_total{controller="cluster",resource="clusters",verb="patch"}' in text
    terminate(up)
    with pytest.raises(urllib.error.URLError):
        get(f"http://{address}/healthz")


def test_health_address_in_use_is_rejected(data: Path, start: Start) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        ended = run("up", "--data-dir", data, "--listen", "127.0.0.1:0", "--health-listen", address)
    assert refused(ended) == f"remuda up: cannot listen on {address} for --health-listen: Address already in use"
    terminate(start(data))


def test_second_up_on_same_data_directory_is_rejected(data: Path, start: Start) -> None:
    first = start(data)
    said = refused(run("up", "--data-dir", data, "--listen", "127.0.0.1:0"))
    assert f"in use by process {first.pid}" in said
    assert first.http("GET", "/readyz").code == 200


def test_loop_guard_reports_no_violation(data: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_LOOP_GUARD", "1")
    up = start(data)
    monkeypatch.delenv("REMUDA_LOOP_GUARD")
    up.http("POST", CLUSTERS, cluster("c"))
    up.until("c", is_cared_for)
    terminate(up)
    assert "Traceback" not in up.complaints


def test_up_help_lists_options() -> None:
    said = run("up", "--help")
    assert (said.code, said.err) == (0, "")
    for option in ("--data-dir", "--listen", "--controllers", "--health-listen"):
        assert f"  {option} " in said.out
