"""Plans from files of this host: every `*.plan` below a folder, in the order of their paths, every five seconds.

The result is stored beside each plan, in `<name>.pos`. A plan whose instructions failed is not retried until it
changes. `X.plan.skip` disables `X.plan`; so does a name that begins with a dot.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import time

from remuda.agent import apply, disk, formats, instructions, log, probes, rules
from remuda.agent.config import Config
from remuda.agent.plan import PlanError, parse

_PERIOD_SECONDS = 5.0


def follow(config: Config, stop: threading.Event) -> None:
    while True:
        try:
            look(config, stop)
        except OSError as error:
            log.warning(f"local plans: {error}")
        except instructions.Stopped:
            return
        if stop.wait(_PERIOD_SECONDS):
            return


def look(config: Config, stop: threading.Event) -> None:
    for path in _plans(config.local_plan_directory):
        content = disk.read(path)
        if content is not None:
            _follow_one(path, content, config, stop)


def _plans(folder: str) -> list[str]:
    found, skipped = [], set()
    for top, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".skip"):
                skipped.add(name[: -len(".skip")])
            elif name.endswith(".plan") and not name.startswith("."):
                found.append(os.path.join(top, name))
    return sorted(path for path in found if os.path.basename(path) not in skipped)


def _follow_one(path: str, content: bytes, config: Config, stop: threading.Event) -> None:
    position, checksum = _read(path + ".pos"), rules.checksum(content)
    changed = position.get("appliedChecksum") != checksum
    try:
        plan = parse(content)
    except PlanError as error:
        log.once(f"{path}: {error}")
        return
    after = dict(position)
    if changed:
        log.info(f"starting local plan {path}")
        # As in system-agent: local plans have attempt 0, and the checksum is stored even if an instruction has failed.
        outcome = apply.carry_out(plan, content, checksum, 0, config, stop)
        if outcome.failure:
            log.error(f"local plan {path}: {outcome.failure}")
        kept = formats.unpack(_bytes(position, "output"))
        kept.update({name: base64.b64encode(output).decode() for name, output in outcome.outputs.items()})
        after.update(appliedChecksum=checksum, output=base64.b64encode(formats.pack(kept)).decode())
    records = formats.unpack(_bytes(position, "periodicOutput"))
    due = apply.seconds_until_due(plan, records, time.time())
    if due is not None and (changed or due <= 0):
        records = apply.run_due(plan, records, checksum, config, stop, every=changed)
        after["periodicOutput"] = base64.b64encode(formats.pack(records)).decode()
    if plan.probes:
        found = probes.look(plan.probes, probes.ProbedHost(config.root, config.address), stop, delayed=changed) or {}
        before = position.get("probeStatus") or {}
        after["probeStatus"] = {
            name: rules.probed(before.get(name) or {}, plan.probes[name], well) for name, well in found.items()
        }
    if after != position:
        disk.write(path + ".pos", json.dumps(after).encode())


def _read(path: str) -> formats.Json:
    try:
        found = json.loads(disk.read(path) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _bytes(position: formats.Json, key: str) -> bytes:
    try:
        return base64.b64decode(position.get(key) or "")
    except (ValueError, TypeError):
        return b""
