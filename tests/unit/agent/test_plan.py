"""Reading plans."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.agent.plan import File, Instruction, Plan, PlanError, Probe, parse


def test_complete_plan_is_parsed() -> None:
    found = parse(
        b"""{"files":[{"path":"/a","content":"aGk=","permissions":"0644","uid":1,"gid":2,"dynamic":true},
                      {"path":"/b","directory":true,"action":"delete"}],
            "instructions":[{"name":"i","image":"x:1","command":"sh","args":["-c"],"env":["A=b"],"saveOutput":true}],
            "periodicInstructions":[{"name":"p","periodSeconds":5,"saveStderrOutput":true}],
            "probes":{"k":{"initialDelaySeconds":1,"timeoutSeconds":5,"successThreshold":1,"failureThreshold":2,
              "httpGet":{"url":"http://x","insecure":true,"clientCert":"/c","clientKey":"/k","caCert":"/ca"}}},
            "error":"", "somethingNew": 1}"""
    )
    assert found == Plan(
        files=(File("/a", b"hi", False, 1, 2, "0644"), File("/b", directory=True, action="delete")),
        instructions=(Instruction("i", "x:1", "sh", ("-c",), ("A=b",), save_output=True),),
        periodic_instructions=(Instruction("p", period_seconds=5, save_stderr=True),),
        probes={"k": Probe("k", "http://x", True, "/ca", "/c", "/k", 1, 5, 1, 2)},
    )


@pytest.mark.parametrize("content", [b"{}", b'{"files":null,"instructions":null,"probes":null}', b' {"error":"x"} '])
def test_missing_or_null_plan_fields_are_empty(content: bytes) -> None:
    assert parse(content) == Plan()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the plan is not JSON: line 1, column 1"),
        (b'{"files":[],}', "the plan is not JSON: line 1"),
        (b"\xff", "the plan is not JSON"),
        (b"[" * 100_000, "the plan is not JSON"),
        (b"[]", "plan is not an object"),
        (b'{"files":[{"path":1}]}', r"plan.files\[0\].path is not a string"),
        (b'{"files":[{"uid":true}]}', r"plan.files\[0\].uid is not a whole number"),
        (b'{"files":[{"content":"%%%"}]}', r"plan.files\[0\].content is not base64"),
        (b'{"instructions":[{"args":[1]}]}', r"plan.instructions\[0\].args is not a list of strings"),
        (b'{"probes":{"x":1}}', "plan.probes.x is not an object"),
        (b'{"probes":{"x":{"httpGet":[]}}}', "plan.probes.x.httpGet is not an object"),
    ],
)
def test_invalid_plan_error_names_the_field_path(content: bytes, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        parse(content)


def test_plan_error_does_not_leak_plan_content() -> None:
    with pytest.raises(PlanError) as caught:
        parse(b'{"files":[{"content":"c2VjcmV0!"}]}')
    assert "c2VjcmV0" not in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["files", "instructions", "probes", "path", "args", "httpGet", "uid"]),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_arbitrary_json_parses_or_raises_plan_error(value: object) -> None:
    try:
        parse(json.dumps(value).encode())
    except PlanError:
        pass
