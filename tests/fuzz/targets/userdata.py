"""User data of machines: cloud-init's YAML, to which the manager adds its script."""

from __future__ import annotations

import yaml

from remuda.kube import untrusted_yaml
from remuda.providers.bootstrap.data import cloud_config
from tests.fuzz.source import Source

_STARTS = (
    "",
    "#cloud-config\n",
    "## template: jinja\n#cloud-config\n",
    "#cloud-config\nruncmd:\n- ",
    "#cloud-config\n{",
)
_PIECES = (
    *(
        "runcmd:",
        "write_files:",
        "users:",
        "\n",
        "\n- ",
        "\n  ",
        "- ",
        "a: ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "&x ",
        "*x",
        "<<: ",
    ),
    *("'", '"', "|\n", ">-\n", "#", "!!binary ", "!!python/object:os.system ", "2020-01-01", "2020-99-01", "0x1_", "~"),
    *("!!set ", "!!omap ", "? ", ": ", "---\n", "...\n", "1e400", ".nan", "\u2028", "\ufeff", "%YAML 1.1\n", "no"),
)
_LARGEST = 1024 * 1024


def check(data: bytes) -> None:
    """Raise if user data is neither used nor refused with words, or the result is not the user's and ours."""
    source = Source(data)
    start = source.pick(_STARTS)
    if source.flag():
        text = start + source.rest().decode("utf-8", "replace")
    else:
        text = start + "".join(source.pick(_PIECES) for _ in range(source.byte()))
    try:
        rendered = cloud_config("#!/bin/sh\ntrue\n", text)
    except ValueError as error:
        assert "spec.userdata.inlineUserdata" in str(error), error
        return
    assert len(rendered) <= _LARGEST
    config = untrusted_yaml.load(rendered)
    assert config["runcmd"][0] == ["sh", "/usr/local/custom_script/install.sh"]
    assert config["write_files"][0]["path"] == "/usr/local/custom_script/install.sh"
    assert isinstance(config, dict)
    assert yaml.safe_load(rendered.partition("\n")[2] if rendered.startswith("##") else rendered) is not None
