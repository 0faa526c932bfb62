"""Which controllers run, and what is said of a choice that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.access import setup as access
from remuda.app import controllers
from remuda.app.process import StartRefused
from remuda.capi import admission, setup
from remuda.providers import setup as providers
from remuda.provisioning import admission as provisioning
from remuda.runtime.manager import Manager
from remuda.runtime.webhooks.configuration import Location, configurations

NAMES = st.lists(st.sampled_from([*controllers.GROUPS, *controllers.EVERY]), min_size=1)


def test_empty_controller_selection_chooses_all_controllers() -> None:
    assert controllers.choose(()) == controllers.EVERY == controllers.choose(tuple(controllers.GROUPS))


@given(NAMES)
def test_controller_selection_is_unique_and_in_fixed_order(wanted: list[str]) -> None:
    chosen = controllers.choose(wanted)
    assert [name for name in controllers.EVERY if name in chosen] == list(chosen)
    assert chosen == controllers.choose(sorted(wanted))
    assert set(wanted) - set(controllers.GROUPS) <= set(chosen)


def test_unknown_controller_name_error_lists_valid_names() -> None:
    with pytest.raises(StartRefused) as refused:
        controllers.choose(("machine", "machines", "kore"))
    said = str(refused.value)
    assert said.startswith("unknown controller or group machines and kore; the groups are core, providers")
    assert "machinehealthcheck" in said


def test_startup_message_lists_running_controllers() -> None:
    assert controllers.ready_text(("cluster", "machine")) == "runs cluster, machine"


def test_webhooks_cover_admission_functions_of_chosen_controllers() -> None:
    for chosen, functions in (
        (("machine",), admission.FUNCTIONS),
        (("rkebootstrap",), providers.ADMISSION),
        (("provisioningcluster",), provisioning.FUNCTIONS),
        (("token",), access.admission_functions()),
        (("machine", "rkebootstrap", "provisioningcluster", "token"), controllers.ADMISSION),
        ((), ()),
    ):
        found = controllers.webhooks(chosen)
        assert {(one.target.group, one.target.plural) for one in found} == {(f.group, f.plural) for f in functions}


def test_secret_and_job_webhooks_select_only_remuda_objects() -> None:
    """Otherwise no Secret and no Job of a cluster could be written while no manager runs."""
    for one in controllers.webhooks(controllers.EVERY):
        guards_deletion = one.operations == ("DELETE",)
        assert bool(one.only) == (guards_deletion or one.target.plural in ("secrets", "jobs"))


def test_webhook_paths_are_unique() -> None:
    paths = [one.path("validate") for one in controllers.webhooks(controllers.EVERY)]
    assert len(paths) == len(set(paths))


def test_access_webhooks_exclude_requests_of_the_manager() -> None:
    found = [one for one in controllers.webhooks(controllers.EVERY) if one.except_manager and not one.only]
    assert len(found) == 6
    for _, rendered in configurations("n", found, Location(url="https://a"), b"", "it's me"):
        for entry in rendered["webhooks"]:
            assert [one["expression"] for one in entry["matchConditions"]] == [
                "request.userInfo.username != 'it\\'s me'"
            ]


async def test_manager_adds_only_chosen_controllers() -> None:
    manager = Manager(client=None)  # type: ignore[arg-type]
    controllers.add(manager, ("cluster", "machineset"))
    assert list(manager.controllers) == ["cluster", "machineset"]
    bare = Manager(client=None)  # type: ignore[arg-type]
    controllers.add(bare, ())
    assert (bare.controllers, bare.caches.missing) == ({}, {})
    assert set(setup.CONTROLLERS) == set(controllers.GROUPS["core"])
