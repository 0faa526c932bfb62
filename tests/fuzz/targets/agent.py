"""What the agent on a node reads: YAML, configuration, answers of the manager and of registries, unit files."""

from __future__ import annotations

import io
import json
import math
from typing import Any

from remuda.agent import config, kube, registration, web, yaml_subset
from remuda.agent.config import ConfigError
from remuda.agent.images import ImageError, manifests, references
from remuda.agent.images.platforms import Platform
from remuda.agent.images.registries import Registries
from remuda.agent.kube import ApiError
from remuda.lab.units import unitfile
from tests.fuzz.source import Source

_YAML = (
    *(
        "a",
        "b: ",
        ": ",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "'",
        '"',
        "|\n",
        ">-\n",
        "|2+\n",
        "[",
        "]",
        "{",
        "}",
        ",",
        "#",
        " ",
    ),
    *(
        "\t",
        "&x",
        "*x",
        "!!str ",
        "0644",
        "1",
        "1.5",
        "true",
        "~",
        "---",
        "...",
        "%YAML",
        "? ",
        "\\",
        "\\x4",
        "\\u00e9",
    ),
    *("\r\n", "\ufeff", "''", "é", '"a": ', "-", ":", "@", "`"),
)
_UNIT = (
    *(
        "[Unit]\n",
        "[Service]\n",
        "ExecStart=",
        "ExecStartPre=-",
        "Environment=",
        "Restart=",
        "always",
        "\n",
        "\\\n",
        " ",
    ),
    *(
        "'",
        '"',
        "RestartSec=",
        "5min 2s",
        "Type=notify",
        "%n",
        "$A",
        "${A}",
        "#",
        ";",
        "/bin/true",
        "A=b",
        "TimeoutStopSec=",
    ),
)
_NAMES = (
    *(
        "schemaVersion",
        "manifests",
        "layers",
        "digest",
        "size",
        "platform",
        "os",
        "architecture",
        "linux",
        "amd64",
        "data",
    ),
    *("metadata", "uid", "resourceVersion", "type", "object", "ERROR", "code", "message", "mirrors", "docker.io", "*"),
    *("endpoint", "rewrite", "configs", "https://a", "^(.*)$", "$1/x", "sha256:" + "a" * 64),
)


def check(data: bytes) -> None:
    """Raise if anything is neither read nor refused in the documented way."""
    source = Source(data)
    source.pick((_check_yaml, _check_config, _check_answers, _check_images, _check_unit))(source)


def _text(source: Source, pieces: tuple[str, ...]) -> str:
    if source.flag():
        return source.rest().decode("utf-8", "replace")
    return "".join(source.pick(pieces) for _ in range(source.byte()))


def _check_yaml(source: Source) -> None:
    text = _text(source, _YAML)
    try:
        value = yaml_subset.load(text)
    except yaml_subset.YamlError as error:
        assert len(str(error)) < 200
        return
    if _is_json(value):
        assert yaml_subset.load(json.dumps(value)) == value


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    return not isinstance(value, float) or math.isfinite(value)


def _check_config(source: Source) -> None:
    text = _text(source, (*_YAML, "workDirectory: ", "remoteEnabled: ", "connectionInfoFile: ", "localEnabled: "))
    try:
        found = config.parse(text)
    except ConfigError:
        return
    assert config.parse(config.render(found)) == found


def _check_answers(source: Source) -> None:
    content = source.rest() if source.flag() else json.dumps(source.json(_NAMES)).encode()
    for read in (kube._secret, _watched):
        try:
            read(content)
        except (ApiError, web.ServerUnreachable):
            pass
    registration._message(content.decode("utf-8", "replace"))
    kube._seconds(content.decode("utf-8", "replace"))
    web.http_date(content.decode("utf-8", "replace"))
    try:
        web.parse("https://" + content.decode("utf-8", "replace"))
    except ValueError:
        pass


def _watched(content: bytes) -> None:
    for value in kube._values(io.BytesIO(content)):
        kube._event(value)


def _check_images(source: Source) -> None:
    try:
        reference = references.parse(source.text(80))
        assert references.parse(str(reference)) == reference
    except ImageError:
        reference = references.parse("docker.io/library/a:1")
    try:
        Registries(source.json(_NAMES)).endpoints(reference)
    except ImageError:
        pass
    content = source.rest() if source.flag() else json.dumps(source.json(_NAMES)).encode()
    try:
        found = manifests.layers(content, Platform("linux", "amd64", ""), lambda digest: content)
        assert all(layer.size >= 0 for layer in found)
    except ImageError:
        pass


def _check_unit(source: Source) -> None:
    text = _text(source, _UNIT)
    try:
        unit = unitfile.parse("a.service", text)
    except unitfile.BadUnit:
        return
    unit.restarts_after(1)
    unitfile.environment_of(text)
