"""Names that users chose, in everything that a command prints: shown, and obeyed by nothing."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nextgen.cli.console.output import print_json, print_line, print_table
from nextgen.cli.topics.stats import print_topic_stats
from nextgen.harness.demo.timeline import Timeline
from nextgen.kernel.limits.cluster import ERROR_LINE_CHARACTERS_MAX
from nextgen.runtime.lifecycle.exit_code import print_error

ROOT = Path(__file__).parents[4]
PRINTERS = ("output.py", "timeline.py", "reporter.py")
"""May write to the terminal themselves. ``reporter`` writes for a program, in ASCII."""

HOSTILE = (
    "[/foo]",
    "[bold red]x[/]",
    ":smile:",
    "[link=http://evil]x",
    "\x1b[2J\x1b]0;title\x07",
    "\u202egpj.exe",
    "\u2066\u200f\u061c",
    "a\nb\r\tc\x00\x7f\x9b\x85\u2028",
    "\ud800",
)
TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(), max_size=20))


def stats_of(name: str) -> dict[str, object]:
    numbers = ("epoch", "producers", "entries", "bytes", "messages_in", "messages_out")
    counts = ("consumers", "backlog_entries", "unacked_messages")
    subscription = {"name": name, "kind": "SHARED", **dict.fromkeys(counts, 1)}
    of_topic = {"topic": name, "broker_id": name, "is_open": True, "is_fenced": False}
    return {**of_topic, **dict.fromkeys(numbers, 1), "subscriptions": [subscription]}


def steering(text: str) -> list[str]:
    """Return what in a printed text would steer a terminal; lines end as they must."""
    return [one for one in text.replace("\n", "") if not one.isprintable()]


@given(name=TEXTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_name_steers_the_terminal_or_is_taken_for_markup(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_line(name)
    print_line(name, style="bold red")
    print_table(name, (name, "number"), [(name, 1), ([name], 2)])
    print_topic_stats([stats_of(name)])
    print_error(name)
    timeline = Timeline(is_quiet=False)
    timeline.happened("!", name, "red")

    printed = capsys.readouterr()
    assert steering(printed.out + printed.err) == []
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("name", ["[/foo]", "[bold red]x[/]", ":smile:"])
def test_names_are_shown_as_they_are(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_topic_stats([stats_of(name)])
    print_line(name)

    assert capsys.readouterr().out.count(name) == 4  # Topic, broker and subscription; the line.


@given(name=TEXTS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_json_for_programs_says_the_name_and_steers_nothing(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_json({"name": name, name: [name]})

    printed = capsys.readouterr().out
    assert steering(printed) == []
    assert json.loads(printed) == {"name": name, name: [name]}


def test_error_line_characters_max_are_printed_and_one_more_is_cut(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_error("x" * ERROR_LINE_CHARACTERS_MAX)
    print_error("x" * (ERROR_LINE_CHARACTERS_MAX + 1))

    whole, cut = capsys.readouterr().err.splitlines()
    assert whole == "nextgen: " + "x" * ERROR_LINE_CHARACTERS_MAX
    assert cut == "nextgen: " + "x" * (ERROR_LINE_CHARACTERS_MAX - 3) + "..."


def direct_writes(path: Path) -> Iterator[str]:
    """Yield what writes to a terminal in a file, or makes text into markup."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in ("print", "typer.echo", "Console", "sys.stdout.write", "click.echo"):
            yield f"{path.name}:{node.lineno}: {called}"
        takes_markup = called.endswith("from_markup") or called == "TextColumn"
        if takes_markup and not any(keyword.arg == "markup" for keyword in node.keywords):
            yield f"{path.name}:{node.lineno}: {called} with markup"


def test_commands_print_in_one_place_only() -> None:
    files = [
        path
        for folder in ("cli", "harness")
        for path in (ROOT / "nextgen" / folder).rglob("*.py")
        if path.name not in PRINTERS
    ]

    assert [found for path in sorted(files) for found in direct_writes(path)] == []
