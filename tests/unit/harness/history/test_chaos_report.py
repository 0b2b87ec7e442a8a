"""The page that shows what was found."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from nextgen.harness.history import Finding, FindingKind, History, check
from nextgen.harness.history.model import Operation, OperationKind, Run
from nextgen.harness.history.report import BARS_PER_KEY_MAX, KEYS_MAX, render_report, write_report
from tests.support.history.plants import PLANTS, Plant
from tests.support.history.world import Size, World

NASTY = "<script>alert('x')</script>&\"'"


class Page(HTMLParser):
    """Counts tags and collects what is shown and what could be fetched or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.classes: list[str] = []
        self.shown: list[str] = []
        self.outside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "class":
                self.classes += (value or "").split()
            if name in ("src", "href", "data") or name.startswith("on"):
                self.outside.append(f"{name}={value}")

    def handle_data(self, data: str) -> None:
        self.shown.append(data)

    @property
    def text(self) -> str:
        return "".join(self.shown)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_the_page_of_a_finding_tells_it_and_how_to_repeat_it(plant: Plant) -> None:
    history = plant.spoil(World(2, Size(operations=500)).history())
    verdict = check(history)

    page = Page(render_report(history, verdict))

    assert "not green" in page.text
    assert "world --seed 2" in page.text
    for finding in verdict.findings:
        assert finding.message[:300] in page.text
    assert page.outside == []
    assert set(page.tags) & {"script", "link", "img", "iframe", "object"} == set()
    assert page.tags.count("svg") >= 1
    assert {"fault", "acks"} <= set(page.classes)


def test_the_operations_of_the_key_are_drawn_and_the_named_ones_marked() -> None:
    plant = next(each for each in PLANTS if each.name == "stale read")
    history = plant.spoil(World(2, Size(operations=500)).history())
    verdict = check(history)
    (finding,) = verdict.findings

    page = Page(render_report(history, verdict))

    assert page.classes.count("found") == len(finding.operations)
    of_key = [op for op in history.operations if op.key == finding.key]
    drawn = sum(f"{op.name} {op.kind}" in page.text for op in of_key)
    assert drawn == min(len(of_key), BARS_PER_KEY_MAX)


def test_what_the_history_says_is_never_taken_for_markup() -> None:
    operation = Operation(
        NASTY, 1, OperationKind.GET, NASTY, 1, 2, "ok", {NASTY: NASTY}, {"id": NASTY}
    )
    run = Run(NASTY, 0, 10, replay=NASTY)
    history = History(run, operations=(operation,))
    finding = Finding(FindingKind.LOST, NASTY, NASTY, NASTY, 0, (operation.name,), (NASTY,), 2)
    verdict = replace(check(history), findings=(finding,), lost=1)

    text = render_report(history, verdict)

    assert "<script" not in text
    assert NASTY in Page(text).text


def test_the_page_is_bounded_however_much_there_is() -> None:
    """A hundred findings, each about a key with many operations and long texts."""
    long = "x" * 5_000
    operations = tuple(
        Operation(
            f"c-{key}",
            number,
            OperationKind.GET,
            f"key-{key}",
            number,
            number + 1,
            "ok",
            {"a": long},
        )
        for key in range(KEYS_MAX + 10)
        for number in range(BARS_PER_KEY_MAX + 20)
    )
    history = History(Run("r", 0, 1_000), operations=operations)
    findings = tuple(
        Finding(FindingKind.VIOLATION, "c", long, f"key-{key}", at_ns=5)
        for key in range(KEYS_MAX + 10)
    )
    verdict = replace(check(History(history.run)), findings=findings)

    text = render_report(history, verdict)

    assert text.count('class="ok"') == KEYS_MAX * BARS_PER_KEY_MAX
    assert len(text) < 4_000_000


def test_a_green_run_has_a_page_too_and_it_is_written_whole(tmp_path: Path) -> None:
    history = World(1).history()
    path = tmp_path / "timeline.html"
    path.write_text("older")

    write_report(path, history, check(history))

    assert "Nothing was found" in path.read_text()
    assert re.search("<title>Chaos run world: green</title>", path.read_text())
    assert list(tmp_path.iterdir()) == [path]
