"""The rights of drivers' Jobs: what the code declares is what docs/jobs.md tells."""

from __future__ import annotations

import re
from pathlib import Path

from remuda.providers.machine.rancher_machine.driver import RancherMachine
from remuda.providers.shared import drivers
from remuda.providers.shared.drivers.spi import Needs

PAGE = Path(__file__).parents[4] / "docs" / "jobs.md"
OURS = ("amazonec2", "existing", "nspawn", "process", "sim")


def test_rights_of_every_driver_are_in_the_documentation() -> None:
    found = dict(re.findall(r"^\| `([\w-]+)` \| `?([\w-]+)`? \|", PAGE.read_text(), re.M))
    declared = {name: drivers.find(name).needs for name in OURS} | {"rancher-machine": RancherMachine.needs}
    assert found == {name: ", ".join(needs.rights) or "none" for name, needs in declared.items()}


def test_cluster_driver_has_same_needs_as_its_driver() -> None:
    for name in OURS:
        driver = drivers.find(name)
        assert driver.cluster is None or driver.cluster.needs == driver.needs


def test_driver_needs_no_rights_by_default() -> None:
    assert Needs().rights == ()
    assert Needs(root=True, host_files=True).rights == ("root", "host_files")
