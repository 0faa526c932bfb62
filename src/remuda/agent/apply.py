"""Runs of a plan: its one-time part, and its periodic instructions.

The one-time part consists of files, then instructions, one after the other, until one fails. Due periodic instructions
run in order, until one fails.
"""

from __future__ import annotations

import json
import os
import threading
import time
from typing import NamedTuple

from remuda.agent import disk, files, instructions, interlock, log
from remuda.agent.config import Config
from remuda.agent.formats import Json, shortened
from remuda.agent.plan import Instruction, Plan
from remuda.agent.rules import MOST_MESSAGE, Result, recorded, seconds_until

# system-agent keeps as many plans, in the same format.
_HISTORY = 64
_SUFFIX = "-applied.plan"


class Outcome(NamedTuple):
    outputs: dict[str, bytes]
    failure: str = ""  # error message; empty: success


def carry_out(
    plan: Plan, content: bytes, checksum: str, attempt: int, config: Config, stop: threading.Event
) -> Outcome:
    """Run the one-time part of a plan. Raises instructions.Stopped when it is interrupted."""
    with interlock.active(config.interlock_directory):
        _remember(content, checksum, config)
        outputs: dict[str, bytes] = {}
        for file in plan.files:
            try:
                files.bring(file, config.root)
            except files.FileError as error:
                return Outcome(outputs, str(error))
        with WorkDirectory(config) as workplace:
            for index, instruction in enumerate(plan.instructions):
                result = _run(instruction, workplace.folder(f"{checksum}_{index}"), attempt, config, stop)
                if instruction.save_output:
                    if instruction.name:
                        outputs[instruction.name] = _worth_saving(result)
                    else:
                        log.warning(f"instruction {index} has no name, so its output cannot be saved")
                if result.exit_code:
                    return Outcome(outputs, _failure(index, instruction, result))
        return Outcome(outputs)


def _run(instruction: Instruction, folder: str, attempt: int, config: Config, stop: threading.Event) -> Result:
    try:
        return instructions.run(instruction, folder, attempt=attempt, config=config, stop=stop)
    except (instructions.InstructionError, OSError) as error:
        return Result(-1, b"", str(error).encode("utf-8", "replace"))


def _worth_saving(result: Result) -> bytes:
    """Return standard output, which the manager may parse. After a failure, standard error follows it."""
    if not result.exit_code or not result.stderr:
        return result.stdout
    gap = b"" if not result.stdout or result.stdout.endswith(b"\n") else b"\n"
    return result.stdout + gap + result.stderr


def _failure(index: int, instruction: Instruction, result: Result) -> str:
    named = f"instruction {index}" + (f" ({instruction.name})" if instruction.name else "")
    how = "could not run" if result.exit_code == -1 else f"ended with exit code {result.exit_code}"
    if result.exit_code < -1:
        how = f"was killed by signal {-result.exit_code}"
    last = shortened(_worth_saving(result).strip(), MOST_MESSAGE - 512).decode("utf-8", "replace")
    return f"{named} {how}" + (f": {last}" if last else "")


class WorkDirectory:
    """Working directory of the commands of one run. It is removed afterwards, unless the settings say otherwise."""

    def __init__(self, config: Config) -> None:
        self._keep = config.preserve_work_directory
        self._top = os.path.join(config.work_directory, time.strftime("%Y%m%d-%H%M%S"))

    def __enter__(self) -> WorkDirectory:
        number, top = 0, self._top
        while True:
            try:
                os.makedirs(self._top, mode=0o700)
                return self
            except FileExistsError:  # another run within the same second
                number += 1
                self._top = f"{top}-{number}"

    def folder(self, name: str) -> str:
        return os.path.join(self._top, name)

    def __exit__(self, *_: object) -> None:
        if not self._keep:
            _clear(self._top)


def clean(config: Config) -> None:
    """Delete the working files that an interrupted run left behind."""
    if not config.preserve_work_directory and os.path.isdir(config.work_directory):
        _clear(config.work_directory)


def _clear(folder: str) -> None:
    try:
        disk.remove_tree(folder)
    except OSError as error:  # something left running may still write there
        log.warning(f"cannot empty {folder}: {error.strerror}")


def _remember(content: bytes, checksum: str, config: Config) -> None:
    """Add the plan to the history of applied plans, of which the newest 64 are kept. A failure is only logged."""
    folder = config.applied_plan_directory
    if not folder:
        return
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
        record = json.dumps({"Plan": json.loads(content), "Checksum": checksum}).encode()
        if names and disk.read(os.path.join(folder, names[-1])) == record:
            return
        name = time.strftime("%Y%m%d-%H%M%S") + _SUFFIX
        disk.write(os.path.join(folder, name), record, durable=False)
        for old in sorted({*names, name})[:-_HISTORY]:
            disk.remove(os.path.join(folder, old))
    except (OSError, ValueError) as error:
        log.warning(f"cannot store the applied plan in {folder}: {error}")


# -- periodic instructions


def seconds_until_due(plan: Plan, records: Json, now: float) -> float | None:
    """Return the seconds until the first periodic instruction is due; None when there are none."""
    return min(
        (seconds_until(records.get(each.name), each, now) for each in plan.periodic_instructions if each.name),
        default=None,
    )


def run_due(plan: Plan, records: Json, checksum: str, config: Config, stop: threading.Event, *, every: bool) -> Json:
    """Run the instructions that are due, and return the records. `every`: the plan was just applied, so all are due.

    Raises instructions.Stopped.
    """
    records = dict(records)
    with WorkDirectory(config) as workplace:
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
