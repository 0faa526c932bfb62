"""Plans are the same bytes for ever: what was rendered once is held in golden/, and any difference fails.

After a change that is meant (none is, once this way of rendering has been released: add another), write them anew:

    .venv/bin/python -m tests.unit.providers.controlplane.render.test_golden
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

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
    for name in ("", *(f"install-{distro}.sh" for distro in sample.VERSIONS)):
        own = resource(name).decode() if name else ""
        script = json.dumps(f"{common}\n{own}\nmain\n", ensure_ascii=False).encode()
        content = content.replace(script, f'"<install-common.sh {name}>"'.encode())
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
def test_a_plan_is_what_it_was(name: str, distro: str, features: str, role: str) -> None:
    assert readable(rendered(distro, features, role)) == (GOLDEN / f"{name}.json").read_text("utf-8")


def test_the_scripts_of_plans_are_what_they_were() -> None:
    """They are part of plans: another script is another plan for every host."""
    assert scripts() == (GOLDEN / "scripts.json").read_text("utf-8")


def test_there_is_no_golden_file_too_many() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {"scripts", *(case[0] for case in CASES)}


if __name__ == "__main__":
    written = {name: readable(rendered(distro, features, role)) for name, distro, features, role in CASES}
    written["scripts"] = scripts()
    for path in GOLDEN.glob("*.json"):
        path.unlink()
    for name, text in written.items():
        (GOLDEN / f"{name}.json").write_text(text, "utf-8")
    print(f"{len(CASES)} plans are in {GOLDEN}")
