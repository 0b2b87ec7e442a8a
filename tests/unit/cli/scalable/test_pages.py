"""``scalable-topics get`` and ``stats`` as a terminal shows them, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from nextgen.cli.console.output import as_dict
from nextgen.cli.scalable.change_commands import publish_time_ms
from nextgen.cli.scalable.layout_page import print_layout
from nextgen.cli.scalable.segment_stats import print_segment_stats, segment_documents
from nextgen.kernel.limits.scalable import BUCKETS_PER_SEGMENT_MAX
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from protos.nextgen.v1.broker_service_pb2 import SubscriptionStats, TopicStats
from protos.nextgen.v1.layouts_pb2 import ScalableTopic as StoredTopic
from shards.domain.scalable.state import ScalableTopic
from shards.wire.scalable import scalable_topic_message
from tests.support.shards.scalable import SPLIT, after, changed, new_topic, plan, registered

runner = CliRunner()


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def stored(topic: ScalableTopic) -> StoredTopic:
    return scalable_topic_message(topic)


def page(
    topic: ScalableTopic, capsys: pytest.CaptureFixture[str], columns: int | None = 80
) -> list[str]:
    print_layout(stored(topic), {"k": "v"}, columns=columns, epochs_max=20, has_signs=True)
    return capsys.readouterr().out.splitlines()


def cells(lines: Sequence[str]) -> list[list[str]]:
    return [[cell for cell in line.split() if cell != "│"] for line in lines]


def test_a_layout_has_its_state_its_drawing_and_its_tables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = registered(changed(new_topic(), SPLIT, 0), "c")

    lines = page(topic, capsys)

    assert lines[:3] == [
        "topic://acme/orders/paid",
        "epoch 1, 2 active segments, 1 sealed",
        "k=v",
    ]
    assert lines[3].split() == ["epoch", "0000", "8000"]
    rows = cells(lines)
    assert ["0", "0000-ffff", "100", "%", "sealed", "4", "1,", "2"] in rows
    assert ["2", "8000-ffff", "50", "%", "active", "2", "0"] in rows
    assert ["s", "stream", "creating", "1", "0", "of", "1"] in rows
    assert max(map(len, lines)) <= 80


def test_an_operation_that_is_under_way_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = page(after(new_topic(), plan(SPLIT, 0)), capsys)

    assert lines[3] == (
        "operation 1 is under way: split of 0 into 1, 2, its children are being made ready"
    )


def test_a_drawing_that_is_too_wide_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    lines = page(new_topic(64), capsys)

    assert "(the drawing is wider than the terminal: --wide shows it)" in lines


async def test_statistics_are_those_of_the_segments(capsys: pytest.CaptureFixture[str]) -> None:
    layout = stored(new_topic(2))
    subscription = SubscriptionStats(name="s", backlog_entries=1_200, unacked_messages=3)
    stats = TopicStats(epoch=1, entries=5, subscriptions=[subscription])

    async def gather(names: Sequence[str]) -> list[dict[str, Any]]:
        assert names == [
            "segment://acme/orders/paid/0000-7fff-0",
            "segment://acme/orders/paid/8000-ffff-1",
        ]
        return [
            {"broker_id": "broker-1", "is_open": True, **as_dict(stats), "topic": names[0]},
            {"broker_id": "broker-2", "is_open": False, "topic": names[1]},
        ]

    documents = await segment_documents(layout, gather)
    print_segment_stats(layout, documents, wide=True)

    rows = cells(capsys.readouterr().out.splitlines())
    assert [each["segment_id"] for each in documents] == [0, 1]
    assert ["0", "0000-7fff", "active", "broker-1", "0", "5", "0", "0", "0"] in rows
    assert ["1", "8000-ffff", "active", "broker-2"] in rows
    assert ["s", "classic", "1", "1,200", "3"] in rows


@pytest.mark.parametrize(
    "name", ["persistent://a/b/c", "a/b", "topic://a/b/c-partition-1", "segment://a/b/c/0-f-0"]
)
def test_what_is_no_scalable_topics_name_is_refused(name: str) -> None:
    result = runner.invoke(app, ["scalable-topics", "get", name, "--target", "127.0.0.1:1"])

    assert result.exit_code in (ExitCode.REFUSED, ExitCode.USAGE)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("segments", ["0", "1025", "x"])
def test_segments_per_topic_max_is_checked_before_anything_is_called(segments: str) -> None:
    arguments = ["scalable-topics", "create", "a/b/c", "--segments", segments]

    assert runner.invoke(app, arguments).exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    "arguments",
    [
        ("split", "a/b/c"),
        ("split", "a/b/c", "-1"),
        ("split", "a/b/c", str(2**63)),
        ("merge", "a/b/c", "1"),
        ("rebucket", "a/b/c", "1"),
        ("rebucket", "a/b/c", "1", "--buckets", "0"),
        ("rebucket", "a/b/c", "1", "--buckets", str(BUCKETS_PER_SEGMENT_MAX + 1)),
        ("subscribe", "a/b/c"),
        ("subscribe", "a/b/c", "-s", "s", "--type", "Shared"),
        ("seek", "a/b/c", "-s", "s"),
        ("seek", "a/b/c", "-s", "s", "--to", "yesterday"),
        ("seek", "a/b/c", "-s", "s", "--to", "2026-11-28T14:00:00"),
        ("seek", "a/b/c", "-s", "s", "--to", "-1"),
    ],
)
def test_wrong_arguments_end_a_command_before_it_calls_anything(arguments: Sequence[str]) -> None:
    assert runner.invoke(app, ["scalable-topics", *arguments]).exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20+00:00", 1_700_000_000_000),
        ("2023-11-15T00:13:20.5+02:00", 1_700_000_000_500),
    ],
)
def test_a_publish_time_is_a_number_or_has_an_offset(text: str, time_ms: int) -> None:
    assert publish_time_ms(text) == time_ms
