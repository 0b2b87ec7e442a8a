"""``topics stats`` as a table: what is open, what is not, what could not be shown."""

from __future__ import annotations

import pytest

from nextgen.cli.console.output import as_dict
from nextgen.cli.topics.stats import print_topic_stats
from protos.nextgen.v1.broker_service_pb2 import MessagePosition, SubscriptionStats, TopicStats


def test_units_and_subscriptions_are_rows_whatever_their_state(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "80")
    stats = TopicStats(
        topic="persistent://a/b/open-partition-3",
        epoch=4,
        entries=1_200,
        messages_in=17,
        subscriptions=[
            SubscriptionStats(
                name="mine",
                kind="KEY_SHARED",
                backlog_entries=3,
                mark_delete=MessagePosition(ledger_id=4, entry_id=9),
            )
        ],
    )
    documents = [
        {"topic": "persistent://a/b/open-partition-2", "broker_id": "broker-2", "is_open": False},
        {"broker_id": "broker-1", "is_open": True, **as_dict(stats)},
        {"topic": "persistent://a/b/idle", "broker_id": "broker-2", "is_open": False},
        {"topic": "persistent://a/b/absent", "error": "there is none"},
    ]

    print_topic_stats(documents)

    # Then: the name of a topic stands once, its partitions are rows, and all fits the terminal.
    shown = capsys.readouterr().out.splitlines()
    rows = [[cell for cell in line.split() if cell != "│"] for line in shown]
    assert shown[0] == "persistent://a/b/open"
    assert "\n".join(shown).count("persistent://a/b/open") == 1
    assert ["2", "broker-2", "no", "clients"] in rows
    assert ["3", "broker-1", "open", "0", "1,200", "0", "17", "0"] in rows
    assert ["3", "mine", "key_shared", "0", "3", "0"] in rows
    assert ["all", "broker-2", "no", "clients"] in rows
    assert max(map(len, shown)) <= 80


def test_nothing_is_printed_when_no_topic_could_be_shown(capsys: pytest.CaptureFixture[str]):
    print_topic_stats([{"topic": "t", "error": "there is none"}])

    assert capsys.readouterr().out == ""
