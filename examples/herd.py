"""The second half of the tour: `remuda up` and the simulated provider, and the cluster of cluster.yaml from apply to
delete, with `remuda up` killed in the middle of a rollout."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from picture import CLUSTER, CONTROL_PLANE, HERE, WORKERS, Picture
from stage import REMUDA, TERMINAL, Api, Json, Program, show, step, wait

MANIFEST = Path(__file__).parent / "cluster.yaml"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
VERSION, NEXT_VERSION = "v1.35.2", "v1.36.0"


class Ranch:
    """The two programs, the API between them, and the cloud they have made servers in."""

    def __init__(self, folder: Path) -> None:
        self._data, self._cloud = folder / "data", folder / "cloud"
        self._listen = f"127.0.0.1:{_free_port()}"  # the same after a restart
        self.up = self._start()
        kubeconfig = ("--kubeconfig", str(self._data / "admin.kubeconfig"))
        self.provider = Program("-m", "remuda.simulator", *kubeconfig, "--cloud", str(self._cloud))
        show(self.provider.ready_line)
        self.api = Api.at(self._data)

    def _start(self) -> Program:
        up = Program(*REMUDA, "up", "--data-dir", str(self._data), "--listen", self._listen)
        show(up.ready_line)
        return up

    def crash(self) -> None:
        self.up.kill()
        show("kill -9 of remuda up")
        self.up = self._start()
        self.api = Api.at(self._data)

    def patch(self, path: str, spec: Json) -> None:
        _accepted(self.api.call("PATCH", path, {"spec": spec}, MERGE))

    def servers(self) -> tuple[list[str], list[str]]:
        """Names of those made and those removed, from the cloud's own books."""
        entries = [json.loads(line) for line in (self._cloud / "journal.jsonl").read_text().splitlines()]
        made, removed = ([one["name"] for one in entries if one["event"] == event] for event in ("create", "remove"))
        return made, removed


def tour(folder: Path) -> None:
    step("5. The same API with Cluster API on it, and a provider of simulated servers")
    folder.mkdir()
    ranch = Ranch(folder)

    step("6. kubectl apply -f cluster.yaml: 1 control plane Machine, 2 workers")
    with timed("Available with 3 Machines"):
        for obj in yaml.safe_load_all(MANIFEST.read_text()):
            _apply(ranch.api, obj)
        _watch(ranch, lambda now: now.settled(VERSION))
    show(f"its own API, by the Secret prairie-kubeconfig, has {len(_nodes(ranch.api))} Nodes")

    step("7. Three workers")
    with timed("Available with 4 Machines"):
        ranch.patch(WORKERS, {"replicas": 3})
        _watch(ranch, lambda now: now.settled(VERSION))

    step(f"8. Kubernetes {NEXT_VERSION}: control plane first, then workers one by one, and a kill -9 in between")
    with timed("all 4 Machines replaced"):
        ranch.patch(CONTROL_PLANE, {"version": NEXT_VERSION})
        ranch.patch(WORKERS, {"template": {"spec": {"version": NEXT_VERSION}}})
        _watch(ranch, lambda now: len(now.of_version(NEXT_VERSION)) >= 2)
        ranch.crash()
        _watch(ranch, lambda now: now.settled(NEXT_VERSION))

    step("9. kubectl delete cluster prairie")
    with timed("gone"):
        ranch.api.call("DELETE", CLUSTER)
        ranch.api.wait_for(CLUSTER, lambda found: found.get("code") == 404)
    made, removed = ranch.servers()
    if len(set(made)) != len(made) or sorted(made) != sorted(removed):
        raise SystemExit(f"the cloud made {made} and removed {removed}")
    show(f"the cloud's journal: {len(made)} servers made, none twice; {len(removed)} removed, none left")
    show(f"SIGTERM: exit codes {ranch.provider.end()} and {ranch.up.end()}")


@contextmanager
def timed(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    show(f"{what} after {time.monotonic() - began:.1f} s")


def _watch(ranch: Ranch, done: Callable[[Picture], bool]) -> None:
    """Draws the cluster until it is as it shall be: over itself on a terminal, once at the end on anything else."""
    drawn: list[str] = []

    def draw() -> Json:
        now = Picture.take(ranch.api)
        ended, lines = done(now), list(now.lines())
        if (TERMINAL or ended) and lines != drawn:
            print(f"\033[{len(drawn)}A\033[J" if drawn else "", end="")
            print("\n".join(f"    {line}" for line in lines), flush=True)
            drawn[:] = lines
        return {"ended": ended}

    wait(draw, lambda found: found["ended"], "the cluster")


def _nodes(api: Api) -> list[Json]:
    secret = api.call("GET", f"/api/v1{HERE}/secrets/prairie-kubeconfig")
    workload = Api(yaml.safe_load(base64.b64decode(secret["data"]["value"])))
    nodes: list[Json] = workload.call("GET", "/api/v1/nodes")["items"]
    return nodes


def _apply(api: Api, obj: Json) -> None:
    path = f"/apis/{obj['apiVersion']}{HERE}/{obj['kind'].lower()}s/{obj['metadata']['name']}?fieldManager=tour"
    _accepted(api.call("PATCH", path, obj, APPLY))


def _accepted(answer: Json) -> None:
    if "code" in answer:
        raise SystemExit(f"refused: {answer['message']}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
