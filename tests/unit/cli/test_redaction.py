"""What is hidden before it is handed to somebody else, and what must stay readable. That nothing gets through from a
real server is shown in tests/controllers/test_diagnose_command.py."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
import tracemalloc
import zlib
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent import formats
from remuda.cli import bundle
from remuda.cli.redaction import Redactor, is_secret, outline, plan, values_of
from remuda.providers.shared import names

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc+/=\nMIIEdef\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("password: hunter2", "password: ***"),
        ('{"apiKey": "x", "size": 3}', '{"apiKey": "***", "size": 3}'),
        ("ADMIN_PASSWORD='hunter2' run", "ADMIN_PASSWORD='***' run"),
        ("DBPASS=hunter2", "DBPASS=***"),
        ("run --token abc --size 3", "run --token *** --size 3"),
        ("run --secret-key=abc", "run --secret-key=***"),
        (f"before\n{KEY}\nafter", "before\n***\nafter"),
        (KEY.replace("\n", "\\n"), "***"),
        (KEY[:50], "***"),
        (f"data: {base64.b64encode(KEY.encode()).decode()} end", "data: *** end"),
        ("GET https://bob:pw@h.example/x", "GET https://***@h.example/x"),
        ("Authorization: Basic Ym9iOmh1bnRlcjI=", "Authorization: Basic ***"),
        ("id AKIAABCDEFGHIJKLMNOP", "id ***"),
        ("root:$6$abc$0123456789abcdef:1", "root:***"),
    ],
)
def test_redactor_hides_secret_looking_text(text: str, made: str) -> None:
    assert Redactor().text(text) == made


@pytest.mark.parametrize(
    "text",
    [
        "waits for Secret fleet-default/aws, which does not exist",
        "cloudCredentialSecretName: cattle-global-data:aws",
        "cannot get a token: the server has answered 401",
        "secrets-encryption: true"[:18],
        "Machine prairie-workers-7x2kq-abcde is Ready",
        "v1.36.4+k3s1 https://10.0.0.1:6443/healthz",
        'workqueue_retries_total{name="machineset"} 3',
        "image: registry.example/app@sha256:0123456789",
        "tokenTTL=24h token-ttl=24h",
    ],
)
def test_redactor_keeps_text_that_only_mentions_secrets(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "name", ["password", "rootPass", "agent-token", "clientKeyData", "AWS_SECRET_ACCESS_KEY", "hash"]
)
def test_secret_field_names_are_recognized(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["secretName", "dataSecretName", "credentialRef", "machine-template-hash", "key", "passive"]
)
def test_harmless_field_names_are_not_secret(name: str) -> None:
    assert not is_secret(name)


def test_redacted_object_hides_secrets_and_keeps_structure() -> None:
    obj = {
        "kind": "AcmeConfig",
        "metadata": {"name": "a", "managedFields": [], "annotations": {"x": "y"}},
        "pin": "1234",
        "replicas": 3,
        "credentials": {"user": "bob", "name": "aws"},
        "tokens": ["a", "b"],
        "env": [{"name": "FOO", "value": "bar"}, {"name": "NO_PROXY", "value": "10.0.0.0/8"}],
        "secret": {"name": "motd", "items": []},
    }
    assert Redactor({"AcmeConfig": {"pin"}}).obj(obj) == {
        "kind": "AcmeConfig",
        "metadata": {"name": "a", "annotations": {"x": "y"}},
        "pin": "***",
        "replicas": 3,
        "credentials": {"user": "***", "name": "aws"},
        "tokens": ["***", "***"],
        "env": [{"name": "FOO", "value": "***"}, {"name": "NO_PROXY", "value": "10.0.0.0/8"}],
        "secret": {"name": "motd", "items": []},
    }


@given(st.text(min_size=5).filter(lambda text: len(text.strip()) >= 5), st.text(), st.text())
def test_learned_secret_values_are_redacted_from_any_text(value: str, before: str, after: str) -> None:
    encoded = base64.b64encode(value.encode()).decode()
    redactor = Redactor()
    redactor.learn_secret({"data": {"anything": encoded}})
    if list(values_of({"data": {"anything": encoded}})) == [value]:
        made = redactor.text(f"{before} {value} {after}")
        assert value.strip() not in made or value.strip() in "***"


def test_secret_outline_contains_only_names_and_sizes() -> None:
    secret = {
        "type": "Opaque",
        "metadata": {"name": "a", "namespace": "b", "annotations": {"note": "private"}, "managedFields": []},
        "data": {"password": base64.b64encode(b"hunter2").decode()},
    }
    made = {"name": "a", "namespace": "b", "annotations": ["note"]}
    assert outline(secret) == {"type": "Opaque", "metadata": made, "keys": {"password": "7 bytes"}}


def test_bundle_is_written_atomically_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"

    class Interrupted(dict[str, str]):
        def items(self) -> object:  # type: ignore[override]
            yield "a", "text"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bundle.write(path, "f", Interrupted(), moment=0)
    assert list(tmp_path.iterdir()) == []
    bundle.write(path, "f", {"a/b": "text"}, moment=0)
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["f/a/b"]
    with pytest.raises(bundle.AlreadyThere):
        bundle.write(path, "f", {}, moment=0)
    assert list(tmp_path.iterdir()) == [path]


def test_bundle_keeps_file_created_concurrently(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"

    class Slow(dict[str, str]):
        def items(self) -> object:  # type: ignore[override]
            path.write_text("mine")
            yield "a", "text"

    with pytest.raises(bundle.AlreadyThere):
        bundle.write(path, "f", Slow(), moment=0)
    assert path.read_text() == "mine"


@cache
def bomb(size: int) -> str:
    """gzip of so many zeros, in base64: about a thousandth of them."""
    packer = zlib.compressobj(9, wbits=31)
    piece = bytes(1 << 20)
    packed = b"".join(packer.compress(piece) for _ in range(size >> 20)) + packer.flush()
    return base64.b64encode(packed).decode()


def learned(data: dict[str, str]) -> tuple[Redactor, int]:
    """A Redactor that has read a Secret with these values, and the memory that took at most."""
    secret = {"metadata": {"namespace": "fleet", "name": "m-plan"}, "type": names.PLAN_TYPE, "data": data}
    redactor = Redactor()
    tracemalloc.start()
    try:
        redactor.learn_secret(secret)
        plan(secret, redactor)
        return redactor, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("where", ["applied-output", "plan", "probe-statuses", "nested"])
def test_gzip_bomb_in_plan_secret_is_skipped_and_noted(where: str) -> None:
    packed = bomb(256 << 20)
    inner = base64.b64encode(f'{{"files":[{{"content":"{packed}"}}]}}'.encode()).decode()
    redactor, peak = learned({"plan": inner} if where == "nested" else {where: packed})
    assert peak < 64 << 20
    key = "plan" if where == "nested" else where
    assert redactor.unread == [
        f"Secret fleet/m-plan: {key} was not searched for secrets: it unpacks to more than {8 << 20} bytes"
    ]


def test_gzip_bomb_plan_is_replaced_by_explanation() -> None:
    secret = {"metadata": {"name": "m"}, "data": {"plan": bomb(16 << 20), "plan-state": ""}}
    assert plan(secret, Redactor())["plan"] == f"left out: it unpacks to more than {8 << 20} bytes"


def test_plan_reports_redacted_unit_error_and_no_other_output() -> None:
    status = b'{"unit": "k3s", "state": "failed", "error": "no route; password=hunter22"}'
    records = {
        name: {"exitCode": 0, "stdout": base64.b64encode(output).decode()}
        for name, output in (("unit-status", status), ("tunnel", b"it says more"))
    }
    data = {"applied-periodic-output": base64.b64encode(formats.pack(records)).decode()}
    found = plan({"metadata": {"name": "m"}, "data": data}, Redactor())
    assert found["unit-status"] == {"state": "failed", "error": "no route; password=***"}
    assert "it says more" not in str(found)
    data = {"applied-periodic-output": bomb(16 << 20)}
    assert "unit-status" not in plan({"metadata": {"name": "m"}, "data": data}, Redactor())


def test_nested_gzips_of_one_value_share_the_size_limit() -> None:
    files = [{"content": bomb(3 << 20)} for _ in range(3)]
    redactor, _ = learned({"plan": base64.b64encode(json.dumps({"files": files}).encode()).decode()})
    assert len(redactor.unread) == 1


def test_gzip_output_below_limit_is_searched_for_secrets() -> None:
    stdout = base64.b64encode(b"password: hunter22\nand more").decode()
    packed = formats.pack({"install": {"content": stdout, "filler": "x" * (4 << 20)}})
    redactor, _ = learned({"applied-output": base64.b64encode(packed).decode()})
    assert redactor.unread == []
    assert redactor.text("it was hunter22") == "it was ***"


def test_yaml_alias_bomb_is_not_expanded() -> None:
    lines = ["a0: &a0 {token: abcdefgh}"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    redactor, _ = learned({"plan": base64.b64encode("\n".join(lines).encode()).decode()})
    assert redactor.text("abcdefgh") == "***"


def test_deeply_nested_values_do_not_crash_redactor() -> None:
    brackets = base64.b64encode(b"[" * 100_000 + b"\n").decode()
    closed = base64.b64encode(b"[" * 100_000 + b"]" * 100_000).decode()
    learned({"plan": brackets, "appliedPlan": closed, "probe-statuses": closed})


def test_nested_encodings_beyond_limit_are_noted_as_unsearched() -> None:
    text = "password: hunter22\n"
    for _ in range(30):
        text = "content: " + base64.b64encode(gzip.compress(text.encode())).decode() + "\na: b\n"
    redactor, _ = learned({"plan": base64.b64encode(text.encode()).decode()})
    assert redactor.unread == [
        "Secret fleet/m-plan: plan was not searched for secrets: it has more than 16 nested encodings"
    ]
