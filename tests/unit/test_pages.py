"""The pages for people say what the code says, and lead where they say they lead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remuda.runtime.steps import all_steps
from tests.lab.pages import DOCS, PAGES, declared_steps, rewritten

ROOT = DOCS.parent
HAND_WRITTEN = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_page_lists_match_the_code(name: str) -> None:
    page = (DOCS / name).read_text()
    assert page == rewritten(name, page), "write them anew: .venv/bin/python -m tests.lab.pages"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("cluster-api.md", "| `machineset.create-machine` | "),
        ("cluster-api.md", "| 2 | `DrainingNode` | "),
        ("running.md", "| `workqueue_depth` | "),
        ("system-agent.md", "| a path with .. | "),
        ("drivers.md", "| [`process`](drivers/process.md) | "),
        ("drivers/process.md", "| `timeoutSeconds` | "),
        ("reference/README.md", "| [RKEControlPlane](rke.cattle.io.md#rkecontrolplane) | "),
        ("reference/management.cattle.io.md", "| `userId` | "),
    ],
)
def test_outdated_page_list_is_detected(name: str, line: str) -> None:
    page = rewritten(name, (DOCS / name).read_text())
    behind = re.sub(rf"^{re.escape(line)}.*\n", "", page, flags=re.MULTILINE)
    assert behind != page
    assert rewritten(name, behind) == page


def test_page_without_its_list_raises_value_error() -> None:
    with pytest.raises(ValueError, match=r"running\.md has no list of metrics"):
        rewritten("running.md", "nothing")


def test_every_step_is_listed() -> None:
    """None is hidden in a function, where the list would not find it."""
    source = ROOT / "src"
    declared = sum(len(re.findall(r"^\w+ = step\(", file.read_text(), re.MULTILINE)) for file in source.rglob("*.py"))
    mentioned = sum(len(re.findall(r"\bstep\(\s*\"", file.read_text())) for file in source.rglob("*.py"))
    assert len(declared_steps()) == declared
    assert mentioned == declared + 1  # the example in the module that defines them
    assert set(declared_steps()) <= {step.name for step in all_steps()}


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_links_and_anchors_exist(page: Path) -> None:
    for path, anchor in _LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} does not exist"
        if anchor:
            assert anchor in anchors(target), f"{path} has no heading {anchor}"


def anchors(page: Path) -> set[str]:
    """Of headings, as they are made where pages are shown."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(page.read_text())
    }


def test_headings_become_anchors(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Every act, by its name\n\n## `clusterctl move`\n")
    assert anchors(tmp_path / "a.md") == {"every-act-by-its-name", "clusterctl-move"}
