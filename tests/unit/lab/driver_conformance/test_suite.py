"""The suite itself: a good driver passes it, and each flaw is found by the test that is there for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lab.conformance import Conformance
from tests.unit.lab.driver_conformance import flawed
from tests.unit.lab.driver_conformance.flawed import Flawed, Flawless

TESTS = [name for name in dir(Conformance) if name.startswith("test_")]
INSTALLED = "test_driver_is_found_by_its_name"  # which this one is not

FLAWS = {
    "makes another": "test_repeated_create_yields_one_server",
    "goes by the name": "test_server_of_another_machine_with_same_name_is_not_touched",
    "no steps": "test_remove_cleans_up_after_killed_create",
    "forgets its half": "test_next_create_finishes_killed_create_with_one_server",
    "keeps the disk": "test_remove_cleans_up_after_killed_create",
    "wants something to remove": "test_remove_of_missing_server_succeeds",
    "strips": "test_user_data_arrives_byte_for_byte",
    "claims all": "test_list_has_exactly_the_servers_of_one_management_plane",
    "never runs": "test_server_runs_with_address_and_provider_id",
    "no address": "test_server_runs_with_address_and_provider_id",
    "takes anything": "test_invalid_options_are_reported_before_anything_is_created",
    "unnamed": "test_invalid_options_are_reported_before_anything_is_created",
    "does not notice": "test_refusal_by_infrastructure_raises_readable_error_and_leaves_nothing",
    "raw": "test_refusal_by_infrastructure_raises_readable_error_and_leaves_nothing",
    "says": "test_no_secret_is_ever_printed",
    "logs": "test_no_secret_is_ever_printed",
    "repr": "test_no_secret_is_ever_printed",
    "behind the error": "test_no_secret_is_ever_printed",
}


async def judge(test: str, subject: Flawless) -> None:
    await getattr(Conformance(), test)(subject)


@pytest.mark.parametrize("test", [name for name in TESTS if name != INSTALLED])
async def test_conformance_test_passes_for_correct_driver(test: str, tmp_path: Path) -> None:
    await judge(test, Flawless(tmp_path, ""))


@pytest.mark.parametrize("flaw", FLAWS)
async def test_conformance_test_detects_flawed_driver(flaw: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, RuntimeError, flawed.DriverError)):
        await judge(FLAWS[flaw], Flawless(tmp_path, flaw))


@pytest.mark.parametrize(
    ("options", "test"),
    [
        (flawed.Undocumented, "test_every_option_has_documentation_and_json_name"),
        (flawed.Unwritten, "test_every_option_has_documentation_and_json_name"),
        (flawed.BadDefault, "test_every_default_is_a_valid_value"),
        (flawed.BadDefault, "test_credentials_map_to_existing_secret_options"),
        (flawed.BadDefault, "test_suite_options_belong_to_the_model"),
    ],
)
async def test_conformance_test_detects_bad_options_model(options: type[Any], test: str, tmp_path: Path) -> None:
    class Mine(Flawed):
        options_type = options

    class Subject(Flawless):
        driver = Mine

    with pytest.raises(AssertionError):
        await judge(test, Subject(tmp_path, ""))
