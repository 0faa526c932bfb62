"""The files of a repository, and those of them that stand in examples/."""

from __future__ import annotations

from pathlib import Path

import yaml
from click.testing import CliRunner

import remuda
from remuda.cli.main import main
from remuda.clusterctl import repository

ROOT = Path(__file__).parents[3]


def test_the_templates_in_examples_are_those_that_are_made() -> None:
    made = repository.cluster_templates(repository.flavours())
    shown = {path.name: path.read_text() for path in (ROOT / "examples" / "clusterctl").glob("*.yaml")}
    assert shown == made, "write them anew: .venv/bin/python -m tests.lab.pages"


def test_every_driver_whose_servers_can_be_nodes_has_a_template() -> None:
    assert {flavour.driver for flavour in repository.flavours()} == {"amazonec2", "existing", "nspawn", "process"}


def test_the_command_writes_what_its_config_file_names(tmp_path: Path) -> None:
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


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(main, ["clusterctl-repository", str(tmp_path / "file" / "r")])
    assert done.exit_code == 1
    assert "cannot be written" in done.output
