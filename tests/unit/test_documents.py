"""Documents that can go stale are checked against the tree."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _tests_by_name() -> set[str]:
    names = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
    return names


def test_every_test_that_the_invariants_name_exists():
    named = re.findall(r"`(test_\w+)`", (ROOT / "docs" / "invariants.md").read_text())

    missing = sorted(set(named) - _tests_by_name())

    assert named
    assert missing == []


def test_invariants_are_numbered_once():
    rows = re.findall(r"^\| ([A-Z]\d+) \|", (ROOT / "docs" / "invariants.md").read_text(), re.M)

    assert len(rows) == len(set(rows))


def test_links_between_documents_lead_somewhere():
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/*.md")]

    dead = [
        f"{document.name}: {target}"
        for document in documents
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
        if not (document.parent / target).exists()
    ]

    assert dead == []
