"""The install script, run by a real shell against real endpoints."""

from __future__ import annotations

import hashlib
import io
import platform
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.web import Request, Result, text
from remuda.providers.bootstrap import assets, script
from remuda.providers.shared.manager_address import Site
from tests.lab.limits import LIMIT_SECONDS
from tests.lab.ports import closed_port
from tests.unit.providers.bootstrap.serving import TOKEN, run, serving, toolbox

_DAY_SECONDS = 24 * 60 * 60
NOWHERE = Site(server_url="https://127.0.0.1:9", ca_pem=b"PEM\n")

# Stands for the agent where only the way to it is the question: says what it was given.
AGENT = """
import os, sys
assert sys.argv[1:] == ["install"]
for name, value in sorted(os.environ.items()):
    if name.startswith(("CATTLE_", "REMUDA_HOST_")):
        print(f"{name}={value}")
"""


def zipapp(text: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("__main__.py", text)
    return made.getvalue()


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> bytes:
    content = zipapp(AGENT)
    monkeypatch.setattr(assets, "agent_zipapp", lambda: content)
    monkeypatch.setattr(assets, "agent_checksum", lambda: hashlib.sha256(content).hexdigest())
    return content


pytestmark = pytest.mark.usefixtures("agent")


@pytest.mark.parametrize("without", ["", "curl"])
async def test_install_script_downloads_verifies_and_configures_agent(tmp_path: Path, without: str) -> None:
    async with serving() as served:
        made = script.for_machine(served.site, TOKEN, {"HTTP_PROXY": "it's"})
        done = await run(made, tmp_path, tools=toolbox(tmp_path, without), REMUDA_HOST_ADDRESS="127.70.0.1")
    assert done.code == 0, done
    said = dict(line.split("=", 1) for line in done.out.splitlines() if "=" in line)
    assert said["CATTLE_TOKEN"] == TOKEN
    assert said["CATTLE_SERVER"] == served.site.server_url
    assert said["CATTLE_CA_CHECKSUM"] == served.site.ca_checksum
    assert said["CATTLE_ROLE_NONE"] == "true"
    assert said["CATTLE_ADDRESS"] == said["REMUDA_HOST_ADDRESS"] == "127.70.0.1"
    assert [path.name for path in tmp_path.iterdir() if path.name != "bin"] == [], "what was fetched is removed"


async def test_install_script_parses_arguments(tmp_path: Path) -> None:
    async with serving() as served:
        arguments = "--token t.1 -e --controlplane -w -n node --address 10.0.0.1 -i 10.0.0.2 -l a=b --label=c=d"
        done = await run(script.public(served.site), tmp_path, *arguments.split(), "--taint", "x=y:NoExecute")
    assert done.code == 0, done
    for expected in (
        "CATTLE_TOKEN=t.1",
        "CATTLE_ROLE_ETCD=true",
        "CATTLE_ROLE_CONTROLPLANE=true",
        "CATTLE_ROLE_WORKER=true",
        "CATTLE_NODE_NAME=node",
        "CATTLE_ADDRESS=10.0.0.1",
        "CATTLE_INTERNAL_ADDRESS=10.0.0.2",
        "CATTLE_LABELS=a=b,c=d",
        "CATTLE_TAINTS=x=y:NoExecute",
    ):
        assert expected in done.out.splitlines()


async def test_install_script_accepts_all_roles_and_interface_address(tmp_path: Path) -> None:
    async with serving() as served:
        done = await run(script.public(served.site), tmp_path, "-t", "t", "-a", "--address", "nowhere0")
    assert done.code == 0, done
    assert {"CATTLE_ROLE_ETCD=true", "CATTLE_ROLE_WORKER=true", "CATTLE_ADDRESS=nowhere0"} <= {*done.out.splitlines()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--worker"], "no token is given: add --token"),
        (["-t", "t"], "no role is given: add --etcd, --controlplane, --worker"),
        (["-t"], "-t needs a value"),
        (["--bogus"], "--bogus is none of these options"),
        (["-t", "t", "-w", "-s", "http://a"], "the server must be an https:// URL, not http://a"),
        (["-t", "t", "-w", "-s", ""], "no server is given"),
    ],
)
async def test_invalid_arguments_fail_at_once_with_reason(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = await run(script.public(NOWHERE), tmp_path, *arguments)
    assert done.code == 1
    assert said in done.out.splitlines()[-1]


async def test_install_script_requires_root(tmp_path: Path) -> None:
    tools = toolbox(tmp_path, "id")
    (tmp_path / "bin" / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "bin" / "id").chmod(0o755)
    done = await run(script.for_machine(NOWHERE, TOKEN), tmp_path, tools=tools, REMUDA_HOST_ROOT="")
    assert (done.code, done.out) == (1, "remuda: this must run as root: repeat it with sudo\n")


@pytest.mark.parametrize("without", ["", "curl"])
async def test_server_with_another_ca_is_not_trusted(tmp_path: Path, without: str) -> None:
    async with serving() as served:
        done = await run(
            script.for_machine(served.site, TOKEN).replace(served.site.ca_checksum, "0" * 64),
            tmp_path,
            tools=toolbox(tmp_path, without),
        )
        assert served.registrar.asked == []
    assert done.code == 1
    assert "has another CA than expected, so it is not trusted" in done.out
    assert TOKEN not in done.out


@pytest.mark.parametrize("without", ["", "curl"])
async def test_missing_checksum_requires_trusted_server_certificate(tmp_path: Path, without: str) -> None:
    async with serving() as served:
        made = script.for_machine(served.site, TOKEN).replace(served.site.ca_checksum, "")
        done = await run(made, tmp_path, tools=toolbox(tmp_path, without))
        assert done.code == 1
        assert "is not trusted" in done.out
        assert "add --ca-checksum" in done.out
        (tmp_path / "ca.pem").write_bytes(served.site.ca_pem)
        trusting = {"CURL_CA_BUNDLE": str(tmp_path / "ca.pem"), "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
        done = await run(made, tmp_path, tools=str(tmp_path / "bin"), **trusting)
        assert done.code == 0, done
        strict = await run(made, tmp_path, STRICT_VERIFY="true")
        assert "no CA checksum is given: add --ca-checksum" in strict.out


async def test_certificate_for_another_name_is_not_trusted(tmp_path: Path) -> None:
    async with serving(name="elsewhere.example") as served:
        done = await run(script.for_machine(served.site, TOKEN), tmp_path)
    assert done.code == 1
    assert "its certificate must be good for the name in the URL" in done.out


async def test_clock_skew_is_reported(tmp_path: Path) -> None:
    tools = toolbox(tmp_path, "date")
    real = "/usr/bin/date"
    fake = f'#!/bin/sh\n[ "$1" = +%s ] && exec {real} -d "1 day ago" +%s\nexec {real} "$@"\n'
    (tmp_path / "bin" / "date").write_text(fake)
    (tmp_path / "bin" / "date").chmod(0o755)
    async with serving(name="elsewhere.example") as served:
        done = await run(script.for_machine(served.site, TOKEN), tmp_path, tools=tools)
    found = re.search(r"This machine's clock is (\d+) seconds behind the server's", done.out.splitlines()[-1])
    assert found, done.out
    assert _DAY_SECONDS - 2 <= int(found[1]) <= _DAY_SECONDS + LIMIT_SECONDS  # the two clocks are not read at once


async def test_unreachable_server_is_retried_until_timeout(tmp_path: Path) -> None:
    with closed_port() as port:
        site = Site(server_url=f"https://127.0.0.1:{port}", ca_pem=b"PEM\n")
        done = await run(script.for_machine(site, TOKEN), tmp_path)
    *tries, last = done.out.splitlines()
    assert done.code == 1
    assert [line.rpartition("; ")[2] for line in tries] == ["next try in 1 s", "next try in 2 s"]
    assert last.startswith(f"remuda: asking {site.server_url} for its CA: ")
    assert last.endswith("Given up after 3 seconds")


async def test_temporarily_failing_server_is_retried(tmp_path: Path) -> None:
    async with serving() as served:
        real = served.listener.handler

        def refuse_once(request: Request) -> Result:
            served.listener.handler = real
            return text(503, "not yet\n")

        served.listener.handler = refuse_once
        done = await run(script.for_machine(served.site, TOKEN), tmp_path, REMUDA_PATIENCE_SECONDS="300")
    assert done.code == 0, done
    assert "the server says 503: not yet; next try in 1 s" in done.out


async def test_missing_python_is_reported_with_advice(tmp_path: Path) -> None:
    async with serving() as served:
        done = await run(script.for_machine(served.site, TOKEN), tmp_path, tools=toolbox(tmp_path, "python3"))
        assert done.code == 1
        assert "the node agent needs Python 3.9 or newer, and this machine has none: install it" in done.out
        bare = tmp_path / "bare"
        bare.mkdir()
        done = await run(script.for_machine(served.site, TOKEN), bare, tools=toolbox(bare, "python3", "curl"))
        assert done.out.startswith("remuda: this machine has neither Python 3.9 or newer nor curl")


async def test_system_agent_is_installed_without_python(tmp_path: Path) -> None:
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    files = tmp_path / "assets"
    files.mkdir()
    (files / f"rancher-system-agent-{arch}").write_bytes(b"#!/bin/sh\n")
    async with serving(files) as served:
        done = await run(script.for_machine(served.site, TOKEN), tmp_path, tools=toolbox(tmp_path, "python3"))
    assert "installing Rancher's system-agent, which" in done.out
    assert "Rancher's system-agent needs a machine of its own" in done.out, "which a process host is not"


async def test_outdated_python_is_skipped(tmp_path: Path) -> None:
    tools = toolbox(tmp_path, "python3")
    (tmp_path / "bin" / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "python3").chmod(0o755)
    (tmp_path / "bin" / "python3.11").symlink_to(sys.executable)
    async with serving() as served:
        done = await run(script.for_machine(served.site, TOKEN), tmp_path, tools=tools)
    assert done.code == 0, done


async def test_newer_agent_is_accepted_over_trusted_connection(tmp_path: Path) -> None:
    async with serving() as served:
        made = script.for_machine(served.site, TOKEN).replace(assets.agent_checksum(), "f" * 64)
        done = await run(made, tmp_path)
    assert done.code == 0, done


async def test_agent_error_is_last_output_of_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = zipapp("import sys; print('remuda-agent: this token has expired'); sys.exit(1)")
    monkeypatch.setattr(assets, "agent_zipapp", lambda: failing)
    async with serving() as served:
        done = await run(script.for_machine(served.site, TOKEN), tmp_path)
    assert (done.code, done.out) == (1, "remuda-agent: this token has expired\n")


async def test_truncated_script_does_nothing(tmp_path: Path) -> None:
    made = script.for_machine(NOWHERE, TOKEN)
    for share in (0.3, 0.6, 0.95):
        done = await run(made[: int(len(made) * share)], tmp_path)
        assert "remuda:" not in done.out
    assert [*tmp_path.iterdir()] == []


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))))
def test_environment_values_are_shell_quoted(value: str) -> None:
    made = script.for_machine(NOWHERE, "t", {"GIVEN": value})
    line = next(line for line in made.split("\n") if line.startswith("export GIVEN="))
    assert shlex.split(line.removeprefix("export ")) == [f"GIVEN={value}"]


@pytest.mark.parametrize("name", ["a b", "1A", "", "A;id", "Ä"])
def test_invalid_variable_name_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of an environment variable"):
        script.for_machine(NOWHERE, "t", {name: "x"})


def test_value_with_a_line_break_is_refused() -> None:
    with pytest.raises(ValueError, match="variable A has a line break"):
        script.for_machine(NOWHERE, "t", {"A": "x\ny"})


def test_user_variables_cannot_override_server_and_token() -> None:
    made = script.for_machine(NOWHERE, "t", {"CATTLE_TOKEN": "mine", "CATTLE_SERVER": "https://mine"})
    assert "mine" not in made


def test_public_script_contains_no_token() -> None:
    assert "CATTLE_TOKEN=" not in script.public(NOWHERE).partition("set -eu")[0]


@pytest.mark.parametrize("name", ["install.sh", "uninstall.sh"])
def test_scripts_are_posix_shell(name: str) -> None:
    path = Path(script.__file__).with_name(name)
    assert (
        re.findall(r"^\s*(?:local|function|source|declare) |\[\[ |pipefail|<<<|&>", path.read_text(), re.MULTILINE)
        == []
    )
    subprocess.run(["/bin/sh", "-n", str(path)], check=True)
