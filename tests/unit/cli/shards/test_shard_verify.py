"""``shards verify``: what is said of the digests that replicas report."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from nextgen.cli.shards.verify import (
    ReplicaResult,
    VerifyReport,
    differences_between,
    differences_inside,
)
from nextgen.main import app
from protos.nextgen.v1.shard_service_pb2 import VerifyReplicaResponse


def result(node_id: str, *, at_position: int | None = 5, **changes: int) -> ReplicaResult:
    answer = VerifyReplicaResponse(
        shard_id=1,
        node_id=node_id,
        position=9,
        events_replayed=9,
        rebuilt_digest=7,
        stored_digest=7,
        scanned_digest=7,
        covers_at_position=at_position is not None,
        digest_at_position=at_position or 0,
    )
    for name, value in changes.items():
        setattr(answer, name, value)
    return ReplicaResult(1, node_id, answer)


def failed(node_id: str) -> ReplicaResult:
    return ReplicaResult(1, node_id, None, "the replica stopped")


def test_equal_digests_are_no_difference():
    results = [result("a"), result("b"), result("c")]

    assert [differences_inside(each) for each in results] == [[], [], []]
    assert differences_between(results, 5) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scanned_digest": 8}, "the rows of its view are not what its log gives at event 9"),
        ({"stored_digest": 8}, "the digest of its view is not what its log gives at event 9"),
    ],
)
def test_a_replica_that_differs_from_its_own_log_is_named(changes, expected):
    assert differences_inside(result("a", **changes)) == [f"shard 1, a: {expected}"]


def test_a_replica_that_was_not_verified_is_a_difference():
    (sentence,) = differences_inside(failed("a"))

    assert sentence == "shard 1, a was not verified: the replica stopped"


def test_the_odd_one_of_three_is_named():
    (sentence,) = differences_between([result("a"), result("b", at_position=6), result("c")], 5)

    assert sentence == "shard 1, b: its log gives another view than the others' at event 5"


def test_two_that_differ_are_both_named():
    results = [result("a"), result("b", at_position=6), failed("c")]

    assert differences_between(results, 5) == [
        "shard 1: a, b differ at event 5, without a majority"
    ]


def test_a_replica_that_does_not_cover_the_position_is_not_compared_there():
    assert differences_between([result("a"), result("b", at_position=None)], 5) == []


def test_the_report_adds_up():
    report = VerifyReport()

    report.add_shard([result("a"), result("b"), failed("c")], 5)

    told = report.as_json()
    assert (told["events"], told["replicas"], told["shards"], told["differences"]) == (9, 3, 1, 1)
    assert told["verified"][0]["rebuilt_digest"] == f"{7:016x}"
    assert told["verified"][2] == {
        "shard_id": 1,
        "node_id": "c",
        "error": "the replica stopped",
    }


def test_the_command_says_what_it_does():
    shown = CliRunner().invoke(app, ["shards", "verify", "--help"])

    assert shown.exit_code == 0
    assert "Rebuild every replica's view" in shown.output
