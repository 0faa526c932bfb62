"""`remuda generate cluster`: objects from a template, and what it says when it cannot make any. No server is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from remuda.cli.main import main
from remuda.clusterctl import repository

VERSION = "v1.36.4+nano1"


def generate(*words: str, stdin: str | None = None, **environment: str) -> tuple[int, str, str]:
    names = ("KUBERNETES_VERSION", "WORKER_MACHINE_COUNT", "CONTROL_PLANE_MACHINE_COUNT", "NAMESPACE", "CLUSTER_NAME")
    env = {**dict.fromkeys(names), **environment}
    result = CliRunner(env=env).invoke(main, ["generate", "cluster", *words], input=stdin)
    return result.exit_code, result.stdout, result.stderr


def objects(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("driver", [one.driver for one in repository.flavours()])
def test_every_flavor_generates_a_complete_cluster(driver: str) -> None:
    words = ("--flavor", driver, "--kubernetes-version", VERSION, "--worker-machine-count", "2", "-n", "team")
    code, out, err = generate("prairie", *words, AMAZONEC2_AMI="ami-1")
    assert (code, err) == (0, "")
    made = {(one["kind"], one["metadata"]["name"]): one for one in objects(out)}
    assert {one["metadata"]["namespace"] for one in made.values()} == {"team"}
    assert made["RKEControlPlane", "prairie"]["spec"]["kubernetesVersion"] == VERSION
    counts = [made["MachineDeployment", f"prairie-{pool}"]["spec"]["replicas"] for pool in ("servers", "workers")]
    assert counts == [1, 2]
    assert "${" not in out


def test_flags_override_set_values_which_override_environment() -> None:
    template = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: '${A}', v: '${KUBERNETES_VERSION}'}}"
    given = {"A": "environment", "KUBERNETES_VERSION": "environment"}
    code, out, _ = generate("c", "--from", "-", stdin=template, **given)
    assert (code, objects(out)[0]["data"]) == (0, {"a": "environment", "v": "environment"})
    words = ("--set", "A=set", "--set", "KUBERNETES_VERSION=set", "--kubernetes-version", "flag")
    code, out, _ = generate("c", "--from", "-", *words, stdin=template, **given)
    assert (code, objects(out)[0]["data"]) == (0, {"a": "set", "v": "flag"})


def test_all_missing_variables_are_reported_together_with_remedies() -> None:
    code, out, err = generate("c", "--flavor", "amazonec2")
    assert (code, out) == (1, "")
    assert "KUBERNETES_VERSION   --kubernetes-version v1.36.4+k3s1\n" in err
    assert "AMAZONEC2_AMI        --set AMAZONEC2_AMI=…, or export" in err
    assert "--list-variables" in err


def test_list_variables_supports_table_and_json_output() -> None:
    code, out, _ = generate("c", "--driver", "amazonec2", "--list-variables")
    assert code == 0
    assert next(line for line in out.splitlines() if "AMAZONEC2_AMI " in line).split()[1] == "yes"
    code, out, _ = generate("c", "--driver", "amazonec2", "--list-variables", "-o", "json")
    known = {one["name"]: one for one in json.loads(out)}
    assert known["AMAZONEC2_AMI"]["required"]
    assert known["AMAZONEC2_REGION"] == {
        "name": "AMAZONEC2_REGION",
        "required": False,
        "default": "us-east-1",
        "value": "",
    }
    assert known["CLUSTER_NAME"]["value"] == "c"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("c", "--flavor", "abacus"), "unknown flavor abacus; known:"),
        (("c", "--flavor", "nspawn", "--from", "-"), "--flavor and --from exclude each other"),
        (("c", "-i", "docker"), "use --from FILE"),
        (("Big", "--kubernetes-version", VERSION), "is not a valid cluster name"),
        (("c", "--kubernetes-version", "1.36"), "1.36"),
        (("c", "--from", "/nowhere.yaml"), "cannot read"),
        (("c", "--set", "A"), "KEY=VALUE"),
        (("c", "--kubernetes-version", VERSION, "-o", "table"), "--list-variables"),
        (("c", "--control-plane-machine-count", "0"), "0 is not in the range"),
    ],
)
def test_invalid_generate_arguments_are_rejected_with_message(words: tuple[str, ...], said: str) -> None:
    code, out, err = generate(*words)
    assert code in (1, 2)
    assert out == ""
    assert said in err


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("a: 1\nb: ${A\n", "standard input, line 2: a closing brace is missing after ${A"),
        ("a: ${A:?x}\n", "line 1: ${A:?x} is not supported"),
        ("a: [", "standard input is not valid YAML"),
        ("a: 1", "every object needs apiVersion"),
    ],
)
def test_invalid_template_error_names_its_location(template: str, said: str) -> None:
    code, out, err = generate("c", "--from", "-", stdin=template)
    assert (code, out) == (1, "")
    assert said in err


def test_ambiguous_yaml_strings_are_quoted_in_output(tmp_path: Path) -> None:
    template = tmp_path / "t.yaml"
    labels = {"commit": "12e4567", "day": "2026-01-01", "mode": "0o17", "sure": "yes", "no": "n", "plain": "word"}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": labels}
    template.write_text(json.dumps(obj))
    code, out, _ = generate("c", "--from", str(template))
    assert code == 0
    assert objects(out)[0]["data"] == labels
    assert [name for name, value in labels.items() if f"{name}: {value}\n" in out] == ["plain"]
