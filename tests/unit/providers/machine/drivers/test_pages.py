"""The page of each driver names its options, all of them, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from remuda.providers.machine import drivers

DOCS = Path(__file__).parents[5] / "docs" / "drivers"


def described(page: str) -> set[str]:
    _, _, options = page.partition("## Options\n")
    table = options.partition("\n## ")[0]
    first = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return set(re.findall("`([^`]+)`", " ".join(first)))


@pytest.mark.parametrize("name", ["existing", "process", "sim"])
def test_the_page_of_a_driver_has_its_options(name: str) -> None:
    options = {field.encode_name for field in msgspec.structs.fields(drivers.find(name).options_type)}
    assert described((DOCS / f"{name}.md").read_text()) == options
