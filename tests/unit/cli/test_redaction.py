"""What is hidden before it is handed to somebody else, and what must stay readable. That nothing gets through from a
real server is shown in tests/controllers/test_diagnose_command.py."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
import tracemalloc
import zlib
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
def test_what_looks_like_a_secret_is_hidden(text: str, made: str) -> None:
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
def test_what_only_speaks_of_one_stays(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "name", ["password", "rootPass", "agent-token", "clientKeyData", "AWS_SECRET_ACCESS_KEY", "hash"]
)
def test_fields_that_are_secret_by_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["secretName", "dataSecretName", "credentialRef", "machine-template-hash", "key", "passive"]
)
def test_fields_that_are_not(name: str) -> None:
    assert not is_secret(name)


def test_an_object_loses_what_is_secret_and_keeps_its_shape() -> None:
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
def test_what_a_secret_holds_is_found_nowhere(value: str, before: str, after: str) -> None:
    encoded = base64.b64encode(value.encode()).decode()
    redactor = Redactor()
    redactor.learn_secret({"data": {"anything": encoded}})
    if list(values_of({"data": {"anything": encoded}})) == [value]:
        made = redactor.text(f"{before} {value} {after}")
        assert value.strip() not in made or value.strip() in "***"


def test_an_outline_has_names_and_sizes_alone() -> None:
    secret = {
        "type": "Opaque",
        "metadata": {"name": "a", "namespace": "b", "annotations": {"note": "private"}, "managedFields": []},
        "data": {"password": base64.b64encode(b"hunter2").decode()},
    }
    made = {"name": "a", "namespace": "b", "annotations": ["note"]}
    assert outline(secret) == {"type": "Opaque", "metadata": made, "keys": {"password": "7 bytes"}}


def test_a_bundle_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
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


def test_who_makes_the_file_meanwhile_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"

    class Slow(dict[str, str]):
        def items(self) -> object:  # type: ignore[override]
            path.write_text("mine")
            yield "a", "text"

    with pytest.raises(bundle.AlreadyThere):
        bundle.write(path, "f", Slow(), moment=0)
    assert path.read_text() == "mine"


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
def test_gzip_bomb_of_a_node_is_not_unpacked_and_is_noted(where: str) -> None:
    packed = bomb(256 << 20)
    inner = base64.b64encode(f'{{"files":[{{"content":"{packed}"}}]}}'.encode()).decode()
    redactor, peak = learned({"plan": inner} if where == "nested" else {where: packed})
    assert peak < 64 << 20
    key = "plan" if where == "nested" else where
    assert redactor.unread == [
        f"Secret fleet/m-plan: {key} was not searched for secrets: it unpacks to more than {8 << 20} bytes"
    ]


def test_plan_that_is_a_gzip_bomb_is_left_out_in_words() -> None:
    secret = {"metadata": {"name": "m"}, "data": {"plan": bomb(16 << 20), "plan-state": ""}}
    assert plan(secret, Redactor())["plan"] == f"left out: it unpacks to more than {8 << 20} bytes"


def test_plan_tells_the_last_error_of_the_unit_and_no_other_output() -> None:
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


def test_many_gzips_within_one_value_share_the_limit() -> None:
    files = [{"content": bomb(3 << 20)} for _ in range(3)]
    redactor, _ = learned({"plan": base64.b64encode(json.dumps({"files": files}).encode()).decode()})
    assert len(redactor.unread) == 1


def test_outputs_below_the_limit_are_searched() -> None:
    stdout = base64.b64encode(b"password: hunter22\nand more").decode()
    packed = formats.pack({"install": {"content": stdout, "filler": "x" * (4 << 20)}})
    redactor, _ = learned({"applied-output": base64.b64encode(packed).decode()})
    assert redactor.unread == []
    assert redactor.text("it was hunter22") == "it was ***"


def test_yaml_aliases_do_not_multiply() -> None:
    lines = ["a0: &a0 {token: abcdefgh}"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    redactor, _ = learned({"plan": base64.b64encode("\n".join(lines).encode()).decode()})
    assert redactor.text("abcdefgh") == "***"


def test_deeply_nested_values_do_not_end_the_bundle() -> None:
    brackets = base64.b64encode(b"[" * 100_000 + b"\n").decode()
    closed = base64.b64encode(b"[" * 100_000 + b"]" * 100_000).decode()
    learned({"plan": brackets, "appliedPlan": closed, "probe-statuses": closed})


def test_encodings_within_each_other_end_somewhere() -> None:
    text = "password: hunter22\n"
    for _ in range(30):
        text = "content: " + base64.b64encode(gzip.compress(text.encode())).decode() + "\na: b\n"
    redactor, _ = learned({"plan": base64.b64encode(text.encode()).decode()})
    assert redactor.unread == [
        "Secret fleet/m-plan: plan was not searched for secrets: it has more than 16 nested encodings"
    ]
