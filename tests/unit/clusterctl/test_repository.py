"""The files of a repository, and those of them that stand in examples/."""

from __future__ import annotations

from pathlib import Path

import yaml
from click.testing import CliRunner

import remuda
from remuda.cli.main import main
from remuda.clusterctl import repository
from remuda.providers.machine import definitions as machine_definitions
from remuda.providers.machine import options
from remuda.providers.machine.options import Flag
from remuda.providers.shared import drivers
from remuda.runtime.definitions import install
from tests.unit.apiserver.engine import Engine

ROOT = Path(__file__).parents[3]


def test_example_templates_match_generated_templates() -> None:
    made = repository.cluster_templates(repository.flavours())
    shown = {path.name: path.read_text() for path in (ROOT / "examples" / "clusterctl").glob("*.yaml")}
    assert shown == made, "write them anew: .venv/bin/python -m tests.lab.pages"


def test_every_node_capable_driver_has_a_cluster_template() -> None:
    assert {flavour.driver for flavour in repository.flavours()} == {"amazonec2", "existing", "nspawn", "process"}


def test_repository_command_writes_all_files_named_in_its_config(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["clusterctl-repository", str(tmp_path / "r")])
    assert done.exit_code == 0, done.output
    config = yaml.safe_load((tmp_path / "r" / "clusterctl.yaml").read_text())
    version = f"v{remuda.__version__}"
    for provider in config["providers"]:
        components = Path(provider["url"].replace("/latest/", f"/{version}/"))
        assert components.is_absolute()
        assert components.exists()
        metadata = yaml.safe_load((components.parent / "metadata.yaml").read_text())
        (series,) = metadata["releaseSeries"]
        assert remuda.__version__.startswith(f"{series['major']}.{series['minor']}.")
        assert series["contract"] == "v1beta2"
    assert {one["type"] for one in config["providers"]} == {
        "InfrastructureProvider",
        "BootstrapProvider",
        "ControlPlaneProvider",
    }
    assert {Path(line) for line in done.output.splitlines()} == {
        path for path in (tmp_path / "r").rglob("*") if path.is_file()
    }


async def test_installed_program_driver_gets_a_cluster_template(tmp_path: Path) -> None:
    """Of a program's flags: those of ours are made from what we know of them."""
    flags = [
        Flag(name="corral-access-token", type="string", secret=True),
        Flag(name="corral-size", type="string", default="s-1"),
        Flag(name="corral-disk-gb", type="integer", default=20),
        Flag(name="corral-tags", type="strings"),
    ]
    models = [
        options.of_flags("corral", flags),
        *(options.of_driver(drivers.find(name)) for name in ("process", "sim")),
    ]
    engine = await Engine.open(tmp_path / "data")
    try:
        await install(engine.client, [one for model in models for one in machine_definitions.of_driver(model)])
        found = await repository.flavours_of(engine.client)
    finally:
        await engine.close()
    assert [flavour.driver for flavour in found] == ["corral", "process"]
    made = repository.cluster_templates(found)
    assert made["cluster-template-process.yaml"] == made["cluster-template.yaml"]
    template = made["cluster-template-corral.yaml"]
    assert "kind: CorralMachineTemplate" in template
    for line in ('size: "${CORRAL_SIZE:=s-1}"', 'diskGb: "${CORRAL_DISK_GB:=20}"', "tags: ${CORRAL_TAGS:=[]}"):
        assert line in template
    assert "TOKEN" not in template
    assert "CORRAL_CREDENTIAL" in template


def test_unwritable_repository_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(main, ["clusterctl-repository", str(tmp_path / "file" / "r")])
    assert done.exit_code == 1
    assert "cannot write" in done.output
