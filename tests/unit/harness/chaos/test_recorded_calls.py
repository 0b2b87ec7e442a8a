"""What is written of a request: before it leaves, and what its answer says about its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nextgen.harness.history.model import OK, UNKNOWN, Operation, OperationKind, failed, refused
from nextgen.harness.history.record_file import Recorder, read_records
from nextgen.harness.load.recorded.recorded_calls import RecordedCalls
from nextgen.kernel.errors import (
    ConnectionLost,
    DeadlineExceeded,
    InvalidRequest,
    MetadataError,
    OutcomeForgotten,
    Overloaded,
    Refused,
    Unavailable,
)
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Item, LookupAnswer, Topic
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import (
    CONSISTENCY_ASYNC,
    CONSISTENCY_EFFECTIVE,
    TopicOutcome,
)

TOPIC = "persistent://acme/orders/paid"


class ScriptedDiscovery:
    """Answers each request with the next of its answers, or raises it."""

    def __init__(self, path: Path, *answers: Any) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.written_before: list[int] = []
        self._path = path
        self._answers = iter(answers)

    async def call(self, method: str, request: Any) -> Any:
        self.asked.append((method, request))
        self.written_before.append(len(list(read_records(self._path))))
        answer = next(self._answers)
        if isinstance(answer, MetadataError):
            raise answer
        return answer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "load.jsonl"


@pytest.fixture
def recorder(path: Path) -> Iterator[Recorder]:
    with Recorder(path) as recorder:
        yield recorder


def records(path: Path) -> list[Operation]:
    return [record for record in read_records(path) if isinstance(record, Operation)]


def calls_of(path: Path, recorder: Recorder, *answers: Any) -> tuple[RecordedCalls, Any]:
    discovery = ScriptedDiscovery(path, *answers)
    return RecordedCalls("one", discovery, recorder), discovery  # type: ignore[arg-type]


async def test_a_rename_is_recorded_with_both_names_and_counted(path, recorder):
    answer = pb.WriteResponse(id="t-1", version=7, shard_id=3, position=42)
    calls, discovery = calls_of(path, recorder, answer, Refused("ALREADY_EXISTS", "no"))

    await calls.rename(TOPIC, f"{TOPIC}-again", grace_ms=5_000)
    await calls.rename(TOPIC, f"{TOPIC}-again", grace_ms=5_000)

    asked, answered, _, denied = records(path)
    assert (asked.kind, asked.key) == (OperationKind.RENAME, TOPIC)
    assert asked.argument == {"new_name": f"{TOPIC}-again"}
    assert answered.value == {"id": "t-1", "version": 7}
    assert denied.outcome == refused("ALREADY_EXISTS")
    assert (calls.renames, calls.acknowledged) == (1, 1)
    method, request = discovery.asked[0]
    assert method == "RenameTopic"
    assert (request.name, request.new_name, request.grace_ms) == (TOPIC, f"{TOPIC}-again", 5_000)
    assert request.command_id.hex() == answered.command_id


async def test_a_request_is_written_before_it_leaves_and_again_with_its_answer(path, recorder):
    answer = pb.WriteResponse(id="t-1", version=7, shard_id=3, position=42)
    calls, discovery = calls_of(path, recorder, answer)

    await calls.set_properties(TOPIC, {"by": "one#1"}, expected_version=6)

    asked, answered = records(path)
    assert discovery.written_before == [1]
    assert (asked.outcome, asked.returned_ns) == (UNKNOWN, None)
    assert (answered.client, answered.op_id) == (asked.client, asked.op_id)
    assert answered.outcome == OK
    assert answered.value == {"id": "t-1", "version": 7}
    assert (answered.shard, answered.position) == (3, 42)
    assert answered.argument == {"properties": {"by": "one#1"}, "expected_version": 6}
    method, request = discovery.asked[0]
    assert method == "SetTopicProperties"
    assert request.command_id.hex() == answered.command_id
    assert answered.returned_ns is not None
    assert answered.returned_ns >= asked.invoked_ns


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Refused("NOT_FOUND", "no such topic"), refused("NOT_FOUND")),
        (Unavailable("no leader"), failed(Unavailable.reason)),
        (Overloaded("full"), failed(Overloaded.reason)),
        (DeadlineExceeded("late"), UNKNOWN),
        (ConnectionLost("gone"), UNKNOWN),
        (OutcomeForgotten("too late"), UNKNOWN),
    ],
)
async def test_only_a_definite_error_says_that_nothing_happened(path, recorder, error, outcome):
    calls, _ = calls_of(path, recorder, error)

    await calls.delete(TOPIC)

    assert [one.outcome for one in records(path)] == [UNKNOWN, outcome]
    assert (calls.asked, calls.acknowledged) == (1, 0)


async def test_a_topic_is_created_or_refused_by_its_own_outcome(path, recorder):
    created = pb.CreateTopicsResponse(topics=[TopicOutcome(topic_id="t-1")])
    created.positions.add(shard_id=2, position=9)
    rejected = pb.CreateTopicsResponse(topics=[TopicOutcome(rejection_code="ALREADY_EXISTS")])
    calls, _ = calls_of(path, recorder, created, rejected)

    first = await calls.create(TOPIC, {})
    second = await calls.create(TOPIC, {})

    assert (first.outcome, first.value, first.shard, first.position) == (OK, {"id": "t-1"}, 2, 9)
    assert second.outcome == refused("ALREADY_EXISTS")
    # The shard knows the command by an id that discovery has derived.
    assert first.command_id == ""


@pytest.mark.parametrize(
    ("key", "method"), [("acme", "CreateTenant"), ("acme/orders", "CreateNamespace")]
)
async def test_tenants_and_namespaces_are_created_by_their_names(path, recorder, key, method):
    answer = pb.WriteResponse(id="i-1", version=1, shard_id=1, position=5)
    calls, discovery = calls_of(path, recorder, answer)

    created = await calls.create(key, {"a": "b"})

    assert discovery.asked[0][0] == method
    assert discovery.asked[0][1].name == key
    assert (created.outcome, created.value) == (OK, {"id": "i-1"})


async def test_a_read_has_the_object_or_nothing(path, recorder):
    topic = Topic(
        name=TOPIC,
        topic_id="t-1",
        version=3,
        properties={"by": "two"},
        policies=Policies(message_ttl_ms=7),
        policies_version=2,
    )
    there = pb.GetObjectResponse(item=Item(name=TOPIC, topic=topic))
    calls, _ = calls_of(path, recorder, there, pb.GetObjectResponse(item=Item(name=TOPIC)))

    found = await calls.get(TOPIC)
    missing = await calls.get(TOPIC)

    assert found.value == {
        "id": "t-1",
        "version": 3,
        "properties": {"by": "two"},
        "policies": '{"message_ttl_ms":"7"}',
        "policies_version": 2,
    }
    assert (missing.outcome, missing.value) == (OK, {})


async def test_a_lookup_that_may_be_asked_again_has_no_known_outcome(path, recorder):
    answers = [
        LookupAnswer(topic=TOPIC, topic_id="t-1", epoch=4, broker_id="b-1", session_id="s"),
        LookupAnswer(topic=TOPIC, rejection_code="NOT_FOUND"),
        LookupAnswer(topic=TOPIC, rejection_code="NO_BROKER", retryable=True),
    ]
    calls, _ = calls_of(path, recorder, *[pb.LookupResponse(answers=[one]) for one in answers])

    found, missing, later = [await calls.lookup(TOPIC) for _ in answers]

    assert found.value == {"topic_id": "t-1", "epoch": 4, "broker_id": "b-1", "session_id": "s"}
    assert [one.outcome for one in (found, missing, later)] == [OK, refused("NOT_FOUND"), UNKNOWN]
    assert found.kind is OperationKind.LOOKUP


async def test_a_move_is_made_from_the_epoch_that_is_known(path, recorder):
    answer = LookupAnswer(topic=TOPIC, topic_id="t-1", epoch=5, broker_id="b-2", session_id="s")
    calls, discovery = calls_of(path, recorder, pb.MoveTopicsResponse(answers=[answer]))

    moved = await calls.move(TOPIC, 4)

    (move,) = discovery.asked[0][1].moves
    assert (move.topic, move.expected_epoch) == (TOPIC, 4)
    assert moved.value["epoch"] == 5


async def test_policies_are_set_with_or_without_condition_and_printed(path, recorder):
    answer = pb.WriteResponse(id="t-1", version=4, shard_id=1, position=8)
    calls, discovery = calls_of(path, recorder, answer, answer, answer)

    set_any = await calls.set_policies(TOPIC, Policies(message_ttl_ms=7), effective=True)
    set_first = await calls.set_policies(TOPIC, Policies(message_ttl_ms=8), expected_version=0)
    cleared = await calls.set_policies(TOPIC, None, expected_version=3)

    requests = [request for _, request in discovery.asked]
    assert {method for method, _ in discovery.asked} == {"SetPolicies"}
    assert [r.consistency for r in requests] == [
        CONSISTENCY_EFFECTIVE,
        CONSISTENCY_ASYNC,
        CONSISTENCY_ASYNC,
    ]
    assert [(r.expected_version, r.expects_none) for r in requests] == [
        (0, False),
        (0, True),
        (3, False),
    ]
    assert not requests[2].HasField("policies")
    assert set_any.argument["policies"] == '{"message_ttl_ms":"7"}'
    assert cleared.argument["policies"] == ""
    assert set_first.value == {"id": "t-1", "version": 4}
    assert set_first.command_id == requests[1].command_id.hex()


async def test_policies_are_read_with_their_own_version(path, recorder):
    there = pb.GetPoliciesResponse(policies=Policies(message_ttl_ms=7), version=2)
    calls, _ = calls_of(path, recorder, there, pb.GetPoliciesResponse(version=3))

    found, none = await calls.get_policies(TOPIC), await calls.get_policies(TOPIC)

    assert found.value == {"policies": '{"message_ttl_ms":"7"}', "policies_version": 2}
    assert none.value == {"policies": "", "policies_version": 3}


async def test_a_request_that_the_cluster_does_not_know_is_remembered(path, recorder):
    calls, _ = calls_of(path, recorder, InvalidRequest("Method not found!"), InvalidRequest("no"))

    await calls.set_policies(TOPIC, None)
    await calls.get_policies(TOPIC)

    assert calls.not_understood == f"SetPolicies of {TOPIC}: Method not found!"
    assert [one.outcome for one in records(path)][1] == failed(InvalidRequest.reason)
