"""The suite itself: a good driver passes it, and each flaw is found by the test that is there for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lab.conformance import Conformance
from tests.unit.lab.driver_conformance import flawed
from tests.unit.lab.driver_conformance.flawed import Flawed, Flawless

TESTS = [name for name in dir(Conformance) if name.startswith("test_")]
INSTALLED = "test_it_is_found_by_its_name"  # which this one is not

FLAWS = {
    "makes another": "test_created_twice_is_one_server",
    "goes by the name": "test_another_machines_server_of_the_same_name_is_left_alone",
    "no steps": "test_a_create_killed_anywhere_is_cleared_away_by_remove",
    "forgets its half": "test_a_create_killed_anywhere_is_finished_by_the_next_as_one_server",
    "keeps the disk": "test_a_create_killed_anywhere_is_cleared_away_by_remove",
    "wants something to remove": "test_removing_twice_or_nothing_is_fine",
    "strips": "test_the_user_data_arrives_byte_for_byte",
    "claims all": "test_it_lists_exactly_the_servers_of_one_management_plane",
    "never runs": "test_it_runs_and_has_an_address_and_a_provider_id",
    "no address": "test_it_runs_and_has_an_address_and_a_provider_id",
    "takes anything": "test_bad_options_are_named_before_anything_is_made",
    "unnamed": "test_bad_options_are_named_before_anything_is_made",
    "does not notice": "test_an_infrastructure_that_refuses_is_an_error_in_words_and_leaves_nothing",
    "raw": "test_an_infrastructure_that_refuses_is_an_error_in_words_and_leaves_nothing",
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
        (flawed.Undocumented, "test_every_option_is_documented_and_named_as_users_write_it"),
        (flawed.Unwritten, "test_every_option_is_documented_and_named_as_users_write_it"),
        (flawed.BadDefault, "test_every_default_is_a_valid_value"),
        (flawed.BadDefault, "test_credentials_bring_options_that_exist_and_are_secret"),
        (flawed.BadDefault, "test_the_options_of_this_suite_are_of_the_model"),
    ],
)
async def test_conformance_test_detects_bad_options_model(options: type[Any], test: str, tmp_path: Path) -> None:
    class Mine(Flawed):
        options_type = options

    class Subject(Flawless):
        driver = Mine

    with pytest.raises(AssertionError):
        await judge(test, Subject(tmp_path, ""))
