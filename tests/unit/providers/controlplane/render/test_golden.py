"""Plans are the same bytes for ever: what was rendered once is held in golden/, and any difference fails.

After a change that is meant (none is, once this way of rendering has been released: add another), write them anew:

    .venv/bin/python -m tests.unit.providers.controlplane.render.test_golden
"""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from remuda.agent import plan as agent_plan
from remuda.providers.controlplane import distros, render
from tests.unit.providers.controlplane.render import sample

GOLDEN = Path(__file__).parent / "golden"
CASES = [
    (f"{distro}-{features}-{role}", distro, features, role)
    for distro in sample.VERSIONS
    for features in ("plain", "rich")
    for role in sample.ROLES
]


def rendered(distro: str, features: str, role: str) -> bytes:
    cluster = sample.plain(distro) if features == "plain" else sample.rich(distro)
    return render.render(cluster, sample.host(role), sample.place(role))


def readable(content: bytes) -> str:
    """A plan for people, with the checksum of its bytes. Scripts are told by their checksum: they are files beside."""
    plan = agent_plan.parse(content)
    raw = json.loads(content)
    for shown, file in zip(raw["files"], plan.files, strict=True):
        shown["content"] = _shown(file.content.decode())
    for instruction in raw["instructions"]:
        instruction["args"] = [_shown(argument) for argument in instruction["args"]]
    whole = {"sha256": hashlib.sha256(content).hexdigest(), "plan": raw}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _shown(text: str) -> Any:
    if len(text) > 3000:
        return f"<{len(text.splitlines())} lines, sha256 {hashlib.sha256(text.encode()).hexdigest()}>"
    return text.splitlines() if "\n" in text else text


@pytest.mark.parametrize(("name", "distro", "features", "role"), CASES, ids=[case[0] for case in CASES])
def test_a_plan_is_what_it_was(name: str, distro: str, features: str, role: str) -> None:
    assert readable(rendered(distro, features, role)) == (GOLDEN / f"{name}.json").read_text("utf-8")


def test_there_is_no_golden_file_too_many() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {case[0] for case in CASES}


def test_every_script_of_a_plan_is_a_file_of_the_package() -> None:
    content = json.loads(rendered("k3s", "rich", "init"))
    script = content["instructions"][0]["args"][1]
    assert script.startswith(files(distros).joinpath("install-common.sh").read_text("utf-8"))


if __name__ == "__main__":
    for path in GOLDEN.glob("*.json"):
        path.unlink()
    for name, distro, features, role in CASES:
        (GOLDEN / f"{name}.json").write_text(readable(rendered(distro, features, role)), "utf-8")
    print(f"{len(CASES)} plans are in {GOLDEN}")
