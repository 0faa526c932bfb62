"""Plans are the same bytes for ever: what was rendered once is held in golden/, and any difference fails.

A cluster of one server is `plain-init`; one of several is `plain-init` with `plain-server`; one of split roles is
`plain-etcd`, `plain-control-plane` and `plain-worker`. The contract of the distribution takes each plan of K3s and RKE2
(`checker`).

After a change that is meant (none is, once this way of rendering has been released: add another), write them anew:

    .venv/bin/python -m tests.unit.providers.controlplane.render.test_golden
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from remuda.providers.controlplane import render
from remuda.providers.controlplane.planner.observation import ClusterFacts
from remuda.providers.controlplane.render import plan as plans
from remuda.providers.shared import distros
from tests.unit.providers.controlplane.render import checker, sample

GOLDEN = Path(__file__).parent / "golden"
REFUSED = Path(__file__).parent / "refused"
FEATURES: dict[str, Callable[[str], ClusterFacts]] = {
    "plain": sample.plain,
    "rich": sample.rich,
    "cis": sample.cis,
    "cloud-provider": sample.cloud_provider,
    "data-directory": sample.data_directory,
    "air-gap": sample.air_gap,
    "dual-stack": sample.dual_stack,
}
REAL = ("k3s", "rke2")
CASES = [
    *(
        (f"{distro}-{features}-{role}", distro, features, role)
        for distro in sample.VERSIONS
        for features in ("plain", "rich")
        for role in sample.ROLES
    ),
    *(
        (f"{distro}-{features}-{role}", distro, features, role)
        for distro in REAL
        for features in FEATURES
        if features not in ("plain", "rich")
        for role in ("server", "worker")
    ),
]


def rendered(distro: str, features: str, role: str) -> bytes:
    return render.render(FEATURES[features](distro), sample.host(role), sample.place(role, distro))


def readable(content: bytes) -> str:
    """A plan for people, with the checksum of its bytes. The package's scripts are told by their names."""
    content = _without_scripts(content)
    raw = json.loads(content)
    for file in raw["files"]:
        text = file["content"]
        file["content"] = text if text.startswith("<") else _lines(b64decode(text).decode())
    return _text({"sha256": hashlib.sha256(content).hexdigest(), "plan": raw})


def _without_scripts(content: bytes) -> bytes:
    content = content.replace(b64encode(resource("host_tool.py")), b"<host_tool.py>")
    common = resource("install-common.sh").decode()
    installs = (
        (),
        ("prepare-rke2.sh",),
        ("prepare-rke2.sh", "install-rke2.sh"),
        ("install-k3s.sh",),
        ("install-nano.sh",),
    )
    for names in installs:
        own = "".join(resource(name).decode() for name in names)
        script = json.dumps(f"{common}\n{own}\nmain\n", ensure_ascii=False).encode()
        content = content.replace(script, f'"<install-common.sh {" ".join(names)}>"'.encode())
    tunnel = json.dumps(f"{resource('tunnel.sh').decode()}\nkeep\n", ensure_ascii=False).encode()
    return content.replace(tunnel, b'"<tunnel.sh keep>"')


def resource(name: str) -> bytes:
    return files(distros).joinpath(name).read_bytes()


def scripts() -> str:
    names = sorted(file.name for file in files(distros).iterdir() if file.name.endswith(".sh"))
    return _text({name: hashlib.sha256(resource(name)).hexdigest() for name in (*names, "host_tool.py")})


def _lines(text: str) -> Any:
    return text.splitlines() if "\n" in text else text


def _text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize(("name", "distro", "features", "role"), CASES, ids=[case[0] for case in CASES])
def test_rendered_plan_matches_golden_file(name: str, distro: str, features: str, role: str) -> None:
    assert readable(rendered(distro, features, role)) == (GOLDEN / f"{name}.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "distro", "features", "role"), [case for case in CASES if case[1] in REAL], ids=lambda value: value
)
def test_rendered_plan_satisfies_distribution_contract(name: str, distro: str, features: str, role: str) -> None:
    assert checker.problems(plans.read(rendered(distro, features, role))) == []


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("distro", REAL)
def test_retire_plan_satisfies_distribution_contract(distro: str, features: str) -> None:
    cluster = FEATURES[features](distro)
    plan = plans.read(render.retire(cluster, sample.host("server")))
    data = cluster.spec.data_directories.k8s_distro or cluster.distro.data_dir
    assert checker.retirement_problems(plan, cluster.distro, cluster.version, data) == []


@pytest.mark.parametrize(
    ("role", "words"),
    [
        ("server", "config: cloud-provider-config needs cloud-provider-name beside it"),
        ("server", "config: node-external-ip cannot be set beside a cloud provider"),
        ("server", "config: kube-controller-manager-arg cannot set another secure-port than 10257"),
        ("server", "probe kube-controller-manager: https://127.0.0.1:20257/healthz is not"),
        ("server", "file /data/rke2/server/tls/etcd/peer-ca.crt: rke2 gives it to etcd"),
        ("server", "https://10.0.0.5:6443 is not the supervisor's port 9345"),
        ("worker", "config: node-external-ip cannot be set beside a cloud provider"),
        ("worker", "config: cloud-provider-config needs cloud-provider-name beside it"),
    ],
)
def test_checker_finds_problems_of_plans_refused_by_rke2(role: str, words: str) -> None:
    """The golden plans of an earlier day, which RKE2 v1.36.3 refused."""
    raw = json.loads((REFUSED / f"rke2-rich-{role}.json").read_text("utf-8"))["plan"]
    for file in raw["files"]:
        lines = file["content"] if isinstance(file["content"], list) else [file["content"]]
        file["content"] = b64encode("\n".join(lines).encode()).decode()
    found = checker.problems(plans.read(json.dumps(raw).encode()))
    assert [problem for problem in found if problem.startswith(words)]


def test_plan_scripts_match_golden_file() -> None:
    """They are part of plans: another script is another plan for every host."""
    assert scripts() == (GOLDEN / "scripts.json").read_text("utf-8")


def test_golden_directory_has_no_extra_files() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {"scripts", *(case[0] for case in CASES)}


if __name__ == "__main__":
    written = {name: readable(rendered(distro, features, role)) for name, distro, features, role in CASES}
    written["scripts"] = scripts()
    for path in GOLDEN.glob("*.json"):
        path.unlink()
    for name, text in written.items():
        (GOLDEN / f"{name}.json").write_text(text, "utf-8")
    print(f"{len(CASES)} plans are in {GOLDEN}")
