"""Which controllers one process runs, and what they need on a server before they start.

A choice is made of names and of groups of names: `core` is Cluster API's own, `providers` the other side of its
hand-offs. On a cluster whose core is upstream's, only providers may run: two cores would fight over every Machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.app.process import Refused
from remuda.capi import admission, inventory, setup
from remuda.capi.definitions import DEFINITIONS, definitions
from remuda.kube.client import Client
from remuda.kube.errors import StatusError
from remuda.runtime.definitions import ForeignDefinitions, NotEstablished
from remuda.runtime.definitions import install as install_definitions
from remuda.runtime.manager import Manager
from remuda.runtime.webhooks import Webhook, join

GROUPS: dict[str, tuple[str, ...]] = {"core": setup.CONTROLLERS, "providers": ()}
EVERY = tuple(name for names in GROUPS.values() for name in names)

_FORBIDDEN = 403


def choose(wanted: Sequence[str]) -> tuple[str, ...]:
    """The names of the controllers to run, in their order; nothing wanted means all."""
    if not wanted:
        return EVERY
    unknown = [name for name in wanted if name not in GROUPS and name not in EVERY]
    if unknown:
        raise Refused(
            f"no controller or group is called {' or '.join(unknown)}; "
            f"there are the groups {', '.join(GROUPS)} and the controllers {', '.join(EVERY)}"
        )
    names = {each for name in wanted for each in GROUPS.get(name, (name,))}
    return tuple(name for name in EVERY if name in names)


def told(chosen: Sequence[str]) -> str:
    """For the line of readiness."""
    return f"runs {', '.join(chosen)}" if chosen else "runs nothing: this version has no controllers of providers"


async def install(client: Client, chosen: Sequence[str]) -> None:
    """The definitions of the kinds those controllers manage, brought up to date. Never those of somebody else."""
    if not has_core(chosen):
        return
    try:
        await install_definitions(client, definitions())
        await inventory.install(client, inventory.CORE)
    except ForeignDefinitions as error:
        raise Refused(f"{error} With --controllers=providers this program works beside the other one.") from None
    except NotEstablished as error:
        raise Refused(str(error)) from None
    except StatusError as error:
        raise Refused(_refusal(error)) from None


def _refusal(error: StatusError) -> str:
    if error.code != _FORBIDDEN:
        return f"cannot install the definitions of its kinds: {error}"
    return (
        f"may not install the definitions of its kinds: {error}. Start it once as somebody who may; where nothing has "
        "changed since, it only reads them."
    )


def has_core(chosen: Sequence[str]) -> bool:
    return bool(set(chosen) & set(setup.CONTROLLERS))


def webhooks(chosen: Sequence[str]) -> list[Webhook]:
    """The admission of the kinds those controllers manage."""
    return join((one.kind for one in DEFINITIONS), admission.FUNCTIONS) if has_core(chosen) else []


def add(manager: Manager, chosen: Sequence[str]) -> None:
    if chosen:
        setup.add_controllers(manager, only=chosen)
