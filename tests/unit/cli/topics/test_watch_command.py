"""``topics watch``: what it prints, and the patterns that it refuses before it connects."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from typer.testing import CliRunner

from nextgen.client.client import Client
from nextgen.client.discovery.topic_list import TopicListChanged
from nextgen.kernel.limits.listing import SUBSCRIPTION_PATTERN_CHARACTERS_MAX
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode

A, B = "persistent://acme/orders/a", "persistent://acme/orders/b"
COMMAND = ["topics", "watch", "acme/orders/.*", "--target", "127.0.0.1:1"]


@pytest.fixture
def _changes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def changes(*_: Any, **__: Any) -> AsyncGenerator[TopicListChanged]:
        yield TopicListChanged((A,), (), "1")
        yield TopicListChanged((B,), (A,), "2", is_polled=True)

    monkeypatch.setattr(Client, "watch_topic_list", changes)


@pytest.mark.usefixtures("_changes")
def test_people_see_what_there_is_and_then_what_comes_and_goes() -> None:
    result = CliRunner().invoke(app, COMMAND)

    assert result.stdout.splitlines() == [
        f"  {A}",
        "1 topics, hash 1, watched; changes follow",
        f"- {A}",
        f"+ {B}",
    ]


@pytest.mark.usefixtures("_changes")
def test_programs_get_a_line_for_each_change_and_no_more_than_they_want() -> None:
    result = CliRunner().invoke(app, [*COMMAND, "--json", "--limit", "1"])

    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"created": [A], "deleted": [], "hash": "1", "is_polled": False}
    ]


TOO_LONG = "acme/orders/".ljust(SUBSCRIPTION_PATTERN_CHARACTERS_MAX + 1, "x")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (TOO_LONG, "at most 1024 are allowed"),
        ("acme/orders/(a", "does not compile"),
        (r"acme/orders/(a)\1", "is not evaluated here"),
        ("acme/orders/(?!a).*", "is not evaluated here"),
        ("http://acme/orders/.*", "scheme"),
        ("orders-.*", "orders-.*"),
    ],
)
def test_a_pattern_that_cannot_be_watched_is_wrong_usage(pattern: str, said: str) -> None:
    result = CliRunner().invoke(app, ["topics", "watch", pattern, "--target", "127.0.0.1:1"])

    assert result.exit_code == ExitCode.USAGE
    assert said in result.stderr
    assert len(result.stderr) < 1_000
