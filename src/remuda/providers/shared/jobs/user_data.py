"""User data for cloud-init: our script, and what the user wants besides. Pure.

| the user's own     | what comes of it                                              |
|--------------------|---------------------------------------------------------------|
| nothing            | a `#cloud-config` that writes our script and runs it          |
| begins with `#!`   | the same; the user's script runs first, in the same file      |
| a `#cloud-config`  | kept; our file, our command and the hostname are added to it  |
| anything else      | refused                                                       |
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

import yaml

from remuda.kube import untrusted_yaml
from remuda.providers.shared.drivers.spi import BadOptions

_PATH = "/usr/local/custom_script/install.sh"  # where upstream's is, and people look for it
_HEADER = "#cloud-config"
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def compose(script: bytes, hostname: str, own: str = "") -> bytes:
    """Raises BadOptions for what the user has given and cannot be used."""
    config: dict[str, Any] = {}
    if own.startswith("#!"):
        _, _, body = own.partition("\n")
        script = b"%b\n\n%b" % (body.encode(), script)
    elif own.startswith(_HEADER):
        config = _parsed(own)
    elif own.strip():
        raise BadOptions(f"userdata: must start with #! or {_HEADER}")
    written = {
        "path": _PATH,
        "owner": "root:root",
        "permissions": "0700",  # there is a token in it
        "encoding": "gzip+b64",
        "content": base64.b64encode(gzip.compress(script, mtime=0)).decode(),
    }
    config["write_files"] = [*_list(config, "write_files"), written]
    config["runcmd"] = [*_list(config, "runcmd"), f"sh {_PATH}"]
    if hostname:
        config.setdefault("hostname", hostname)
    return f"{_HEADER}\n{yaml.dump(config, Dumper=_DUMPER, sort_keys=False)}".encode()


def fit(user_data: bytes, limit: int) -> bytes:
    """Return user data within a limit, compressed if it must be: cloud-init unpacks it. Raises BadOptions."""
    if len(user_data) <= limit:
        return user_data
    small = gzip.compress(user_data, mtime=0)
    if len(small) > limit:
        raise BadOptions(
            f"userdata: too large: {len(small)} bytes compressed, together with the bootstrap script; the limit is "
            f"{limit}"
        )
    return small


def _parsed(own: str) -> dict[str, Any]:
    try:
        config = untrusted_yaml.load(own)
    except untrusted_yaml.TooComplex as error:
        raise BadOptions(f"userdata: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # without the text itself: it may hold passwords
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise BadOptions(f"userdata: invalid YAML{where}") from None
    if config is not None and not isinstance(config, dict):
        raise BadOptions("userdata: must be a map of cloud-init keys")
    return dict(config or {})


def _list(config: dict[str, Any], key: str) -> list[Any]:
    found = config.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise BadOptions(f"userdata: {key} must be a list")
    return found
