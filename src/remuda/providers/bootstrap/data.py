"""Bootstrap data: the script that a server runs once, in the format that its infrastructure accepts. Pure.

Our own machines take a shell script. Servers of other providers can be expected to run only cloud-init: they get a
`#cloud-config` that writes the same script and runs it, merged with the user's own cloud-config. A host that registered
itself has run its script already.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any, Literal, NamedTuple

import yaml

from remuda.capi.types import Reference
from remuda.kube import untrusted_yaml
from remuda.providers.shared import names
from remuda.providers.shared.types.bootstrap import CUSTOM_MACHINE

Form = Literal["script", "cloud-config", "none"]

_PATH = "/usr/local/custom_script/install.sh"  # upstream's path, where people look for it
_LONGEST_USERDATA = 64 * 1024
_HEADER = "#cloud-config"
_JINJA = "## template: jinja"
_NOTHING = "#!/bin/sh\n# The host has registered itself: there is nothing left to run.\n"

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Data(NamedTuple):
    value: str
    format: Literal["script", "cloud-config"]


def form(infrastructure: Reference) -> Form:
    if infrastructure.api_group == names.MACHINE_GROUP:
        return "script"
    if (infrastructure.api_group, infrastructure.kind) == (CUSTOM_MACHINE.group, CUSTOM_MACHINE.name):
        return "none"
    return "cloud-config"


def nothing() -> Data:
    return Data(_NOTHING, "script")


def render(form: Form, script: str, userdata: str) -> Data:
    """Return the bootstrap data. Raises ValueError, with a message for users, for unusable user data."""
    if form == "none":
        return nothing()
    if form == "script":
        return Data(script, "script")
    return Data(cloud_config(script, userdata), "cloud-config")


def cloud_config(script: str, userdata: str) -> str:
    config = _user_config(userdata)
    write_files = {
        "path": _PATH,
        "owner": "root:root",
        "permissions": "0700",
        "encoding": "gz+b64",
        # Without a time, the same script always gives the same bytes.
        "content": base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode(),
    }
    config["write_files"] = [write_files, *_list(config, "write_files")]
    config["runcmd"] = [["sh", _PATH], *_list(config, "runcmd")]
    header = f"{_JINJA}\n{_HEADER}\n" if userdata.lstrip().startswith(_JINJA) else f"{_HEADER}\n"
    return header + yaml.dump(config, Dumper=_DUMPER, default_flow_style=False, sort_keys=False)


def _user_config(userdata: str) -> dict[str, Any]:
    if not userdata.strip():
        return {}
    if len(userdata.encode()) > _LONGEST_USERDATA:
        raise ValueError(f"spec.userdata.inlineUserdata is longer than {_LONGEST_USERDATA} bytes")
    lines = userdata.lstrip().splitlines()
    if lines[0].startswith(_JINJA):
        lines = lines[1:]
    if not lines or not lines[0].startswith(_HEADER):
        raise ValueError(f"spec.userdata.inlineUserdata must begin with {_HEADER}")
    try:
        config = untrusted_yaml.load(userdata)
    except untrusted_yaml.TooComplex as error:
        raise ValueError(f"spec.userdata.inlineUserdata cannot be used: {error}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"spec.userdata.inlineUserdata is not YAML: {_where(error)}") from None
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise ValueError("spec.userdata.inlineUserdata must be a map of cloud-init's keys")
    return dict(config)


def _list(config: dict[str, Any], key: str) -> list[Any]:
    found = config.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ValueError(f"{key} in spec.userdata.inlineUserdata must be a list")
    return found


def _where(error: yaml.YAMLError) -> str:
    """Return the problem and its line, without the text itself, which may contain passwords."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it cannot be read"
    return f"{problem} (line {mark.line + 1})" if mark is not None else str(problem)
