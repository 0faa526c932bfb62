"""What a Job says holds none of the secrets it knows."""

from __future__ import annotations

from typing import Annotated

from hypothesis import given
from hypothesis import strategies as st

from remuda.kube.objects import Field
from remuda.providers.shared.drivers.spi import Options
from remuda.providers.shared.jobs.log_redaction import HIDDEN, Scrubber, secret_options, tokens

KEY = """-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAA
AAAABG5vbmUAAAAEbm9uZQ
-----END OPENSSH PRIVATE KEY-----
"""


class Some(Options):
    region: Annotated[str, Field("Where.")] = ""
    sesame: Annotated[str, Field("Opens.", format="password")] = ""


@given(secret=st.text(min_size=5).filter(lambda text: len(text.strip()) >= 5), around=st.text(max_size=20))
def test_secret_is_always_redacted(secret: str, around: str) -> None:
    said = Scrubber([secret])(f"{around}{secret}{around}")
    for line in secret.splitlines():
        if len(line.strip()) >= 5 and not line.startswith("-----"):
            assert line.strip() not in said.replace(HIDDEN, "\0")


def test_redaction_hides_every_line_of_a_key() -> None:
    scrub = Scrubber()
    scrub.add(KEY)
    said = "\n".join(map(scrub, KEY.splitlines()))
    assert "b3Blbn" not in said
    assert "AAAABG5v" not in said


def test_short_or_empty_secrets_redact_nothing() -> None:
    assert Scrubber(["", "a", " "])("a banana") == "a banana"


def test_longer_secret_is_redacted_first() -> None:
    assert Scrubber(["sesame", "sesame-open"])("it is sesame-open") == f"it is {HIDDEN}"


def test_options_are_secret_by_their_model_or_by_their_name() -> None:
    given = {"region": "eu-west-1", "sesame": "hush-hush", "apiToken": "tok-12345", "rootPass": "fido-1234"}
    assert secret_options("linode", given, Some) == ["hush-hush", "tok-12345", "fido-1234"]


def test_tokens_of_a_bootstrap_script_are_found() -> None:
    script = b"#!/bin/sh\nexport CATTLE_TOKEN='abcdefghijklmnop:qrst'\nexport CATTLE_SERVER=https://example.com\n"
    assert tokens(script) == ["abcdefghijklmnop:qrst"]
