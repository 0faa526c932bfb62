"""The periodic instructions of a plan: those that are due, in their order, until one fails."""

from __future__ import annotations

import threading
import time

from remuda.agent import instructions, log
from remuda.agent.apply import Workplace
from remuda.agent.config import Config
from remuda.agent.formats import Json
from remuda.agent.plan import Plan
from remuda.agent.rules import Result, recorded, seconds_until


def seconds_until_due(plan: Plan, records: Json, now: float) -> float | None:
    """Return the seconds until the first periodic instruction is due; None when there are none."""
    return min(
        (seconds_until(records.get(each.name), each, now) for each in plan.periodic_instructions if each.name),
        default=None,
    )


def run_due(plan: Plan, records: Json, checksum: str, config: Config, stop: threading.Event, *, every: bool) -> Json:
    """The records afterwards. `every`: the plan has just been applied, so all of them are due.

    Raises instructions.Stopped.
    """
    records = dict(records)
    with Workplace(config) as workplace:
        for index, instruction in enumerate(plan.periodic_instructions):
            if not instruction.name:
                log.once(f"periodic instruction {index} of plan {checksum[:12]} has no name; skipping it")
                continue
            before, now = records.get(instruction.name), time.time()
            if not every and seconds_until(before, instruction, now) > 0:
                continue
            attempt = ((before or {}).get("failures") or 0) + 1
            folder = workplace.folder(f"{checksum}_periodic_{index}")
            try:
                result = instructions.run(instruction, folder, attempt=attempt, config=config, stop=stop)
            except (instructions.InstructionError, OSError) as error:
                result = Result(-1, b"", str(error).encode("utf-8", "replace"))
            records[instruction.name] = recorded(before, instruction, result, now)
            if result.exit_code:
                log.warning(f"periodic instruction {instruction.name} ended with exit code {result.exit_code}")
                break
    return records
