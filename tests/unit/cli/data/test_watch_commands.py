"""What ``nextgen watch`` prints of a change."""

import json

import pytest
from typer.testing import CliRunner

from nextgen.cli.data.watch_commands import _with_domain, change_as_dict, change_as_text
from nextgen.client.watch_model import Assignment, Change, ChangeKind
from nextgen.main import app

ASSIGNED = Change(
    ChangeKind.ASSIGNED,
    token="1:12,2:7",
    shard_id=1,
    name="persistent://t/n/x-partition-1",
    value=Assignment("persistent://t/n/x-partition-1", "id", "p1", 4, "broker-2", "s"),
    position=12,
    time_ms=1_763_776_800_123,
)


def test_a_json_line_has_the_change_and_the_token_to_resume_from():
    line = change_as_dict(ASSIGNED)

    assert json.loads(json.dumps(line)) == line
    assert (line["change"], line["shard"], line["position"]) == ("assigned", 1, 12)
    assert line["value"]["broker_id"] == "broker-2"
    assert line["from"] == "1:12,2:7"
    assert "properties" not in line


def test_what_does_not_apply_is_left_out_and_what_is_empty_is_not():
    assert change_as_dict(Change(ChangeKind.PROGRESS, "1:5")) == {
        "change": "progress",
        "from": "1:5",
    }
    emptied = Change(ChangeKind.PROPERTIES_SET, "1:6", 1, "acme", properties={}, position=6)
    assert change_as_dict(emptied)["properties"] == {}


def test_a_line_for_people_says_where_when_what_and_of_whom():
    text = change_as_text(ASSIGNED)

    assert text.startswith("1:12 ")
    assert "2025-11-22 02:00:00.123" in text
    assert "assigned" in text
    assert "persistent://t/n/x-partition-1 topic_id=id unit=p1 epoch=4 broker_id=broker-2" in text


def test_a_long_value_is_cut_in_a_line_for_people():
    change = Change(ChangeKind.PROPERTIES_SET, "1:6", 1, "acme", properties={"a": "x" * 500})
    assert len(change_as_text(change)) < 200


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("", ""),
        ("acme/orders/", "persistent://acme/orders/"),
        ("non-persistent://acme/", "non-persistent://acme/"),
    ],
)
def test_a_prefix_without_a_domain_means_the_persistent_one(given, meant):
    assert _with_domain(given) == meant


@pytest.mark.parametrize("token", ["x", "1:2,1:3", "1:0"])
def test_a_malformed_token_is_wrong_usage(token):
    result = CliRunner().invoke(
        app, ["watch", "topics", "--from", token, "--target", "127.0.0.1:1"]
    )
    assert result.exit_code == 2
    assert "token" in result.stderr
