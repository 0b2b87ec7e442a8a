"""Moves, pins and unloads from the command line: what is over and what goes on, by exit code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message import Message
from typer.testing import CliRunner, Result

from nextgen.cli.topics import placement_commands
from nextgen.cli.topics.moves import ask_moves
from nextgen.kernel.errors import DeadlineExceeded, MetadataError, Refused, Unavailable
from nextgen.kernel.limits.cluster import MOVES_PER_REQUEST_MAX
from nextgen.main import app
from nextgen.runtime.lifecycle.exit_code import ExitCode
from protos.nextgen.v1 import discovery_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import Item, LookupAnswer, Topic
from protos.nextgen.v1.policies_pb2 import Policies
from protos.nextgen.v1.shard_service_pb2 import TopicMove, UnassignOutcome

runner = CliRunner()
PAID = "persistent://acme/orders/paid"
DUE = "persistent://acme/orders/due"
LOOK = f"see: nextgen topics why {PAID}"

DONE = LookupAnswer(broker_id="b", broker_grpc="b:1", epoch=2)
REFUSED = LookupAnswer(rejection_code="NOT_ALLOWED", message="placement.zones does not allow it")
NOT_READY = LookupAnswer(rejection_code="NO_BROKER", message="b is not ready", retryable=True)
UNDER_WAY = LookupAnswer(
    rejection_code="NO_BROKER", message="the move is under way", retryable=True, under_way=True
)
NOT_TRIED = LookupAnswer(rejection_code="UNAVAILABLE", message="no leader", retryable=True)


class Discovery:
    """Discovery as the commands see it: each topic is at broker a, and has its answer."""

    def __init__(self) -> None:
        self.answers: dict[str, LookupAnswer | MetadataError] = {}
        self.outcomes: dict[str, UnassignOutcome] = {}
        self.unload_error: MetadataError | None = None
        self.requests: list[Message] = []
        self.are_repeatable: list[bool] = []
        self.is_telling = True
        self.policies = Policies()
        self.policies_error: MetadataError | None = None

    def __call__(self, *_given: object, **_options: object) -> Discovery:
        return self

    async def __aenter__(self) -> Discovery:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        pass

    async def call(self, method: str, request: Message, *, is_repeatable: bool = True) -> Any:
        self.requests.append(request)
        self.are_repeatable.append(is_repeatable)
        if isinstance(request, pb.MoveTopicsRequest):
            return pb.MoveTopicsResponse(answers=[self._moved(move) for move in request.moves])
        if isinstance(request, pb.UnloadTopicsRequest):
            if self.unload_error is not None:
                raise self.unload_error
            outcomes = [self.outcomes[topic] for topic in request.topics]
            return pb.UnloadTopicsResponse(outcomes=outcomes)
        if method == "GetTopic":
            return pb.GetObjectResponse(item=Item(topic=Topic()), shard_id=1)
        if method == "GetPolicies":
            return pb.GetPoliciesResponse(policies=self.policies)
        if isinstance(request, pb.SetPoliciesRequest):
            if self.policies_error is not None:
                raise self.policies_error
            self.policies = request.policies
        return pb.WriteResponse()

    def _moved(self, move: TopicMove) -> LookupAnswer:
        answer = self.answers[move.topic]
        if isinstance(answer, MetadataError):
            raise answer
        return LookupAnswer(topic=move.topic, **{f.name: v for f, v in answer.ListFields()})

    async def watch_assignments(self, names: list[str]) -> AsyncGenerator[Any]:
        from nextgen.client.watch_model import Assignment, ChangeKind

        for name in names:
            value = Assignment(name, "id", "", 7, "a", "s")
            yield SimpleNamespace(kind=ChangeKind.PRESENT, value=value, shard_id=1)
        if not self.is_telling:
            await asyncio.Event().wait()
        yield SimpleNamespace(kind=ChangeKind.SNAPSHOT_COMPLETE, value=None, shard_id=1)

    @property
    def moves(self) -> list[TopicMove]:
        return [
            move
            for request in self.requests
            if isinstance(request, pb.MoveTopicsRequest)
            for move in request.moves
        ]


@pytest.fixture
def discovery(monkeypatch: pytest.MonkeyPatch) -> Discovery:
    played = Discovery()
    monkeypatch.setattr("nextgen.cli.calls.discovery_client.DiscoveryClient", played)
    monkeypatch.setattr("nextgen.client.client.Client", played)
    return played


def nextgen(*arguments: str) -> Result:
    return runner.invoke(app, [*arguments, "--target", "127.0.0.1:1"])


MOVES = (("topics", "move", PAID, DUE), ("topics", "move", PAID, DUE, "--to", "b"))


@pytest.mark.parametrize("command", MOVES)
@pytest.mark.parametrize(
    ("paid", "due", "code"),
    [
        (DONE, DONE, ExitCode.DONE),
        (REFUSED, DONE, ExitCode.REFUSED),
        (NOT_READY, DONE, ExitCode.REFUSED),
        (UNDER_WAY, DONE, ExitCode.NO_ANSWER),
        (UNDER_WAY, REFUSED, ExitCode.REFUSED),
        (NOT_TRIED, DONE, ExitCode.NO_ANSWER),
    ],
)
def test_a_move_that_goes_on_is_not_refused(
    discovery: Discovery,
    command: tuple[str, ...],
    paid: LookupAnswer,
    due: LookupAnswer,
    code: ExitCode,
) -> None:
    discovery.answers = {PAID: paid, DUE: due}

    result = nextgen(*command)

    assert result.exit_code == code
    assert paid.message in result.stderr
    assert (LOOK in result.stderr) is paid.under_way


@pytest.mark.parametrize(
    ("move", "is_repeatable"),
    [
        (TopicMove(topic=PAID), False),
        (TopicMove(topic=PAID, target_broker_id="b"), True),
        (TopicMove(topic=PAID, expected_epoch=7), True),
    ],
)
async def test_a_move_to_any_other_broker_is_not_sent_again_once_it_may_be_done(
    discovery: Discovery, move: TopicMove, is_repeatable: bool
) -> None:
    discovery.answers = {PAID: DONE}

    await ask_moves(discovery, [move])

    assert discovery.are_repeatable == [is_repeatable]


@pytest.mark.parametrize("command", [("move", PAID), ("topics", "move", PAID)])
def test_a_move_that_got_no_answer_may_go_on(
    discovery: Discovery, command: tuple[str, ...]
) -> None:
    discovery.answers = {PAID: DeadlineExceeded("no answer within 60000 ms")}

    result = nextgen(*command)

    assert result.exit_code == ExitCode.NO_ANSWER
    assert "no answer within 60000 ms (DEADLINE_EXCEEDED)" in result.stderr
    assert LOOK in result.stderr


def test_a_move_without_an_answer_reports_the_error(discovery: Discovery) -> None:
    discovery.answers = {PAID: Unavailable("no discovery node could help")}

    result = nextgen("topics", "move", PAID)

    assert result.exit_code == ExitCode.NO_ANSWER
    assert result.stderr == "nextgen: no discovery node could help\n"


async def test_what_was_answered_before_an_error_is_not_lost(discovery: Discovery) -> None:
    topics = [f"{PAID}-{number}" for number in range(MOVES_PER_REQUEST_MAX + 1)]
    discovery.answers = {topic: DONE for topic in topics}
    discovery.answers[topics[-1]] = Unavailable("no discovery node could help")

    answers = await ask_moves(discovery, [TopicMove(topic=topic) for topic in topics])

    assert [answer.topic for answer in answers] == topics
    assert [answer.rejection_code for answer in answers] == [
        *([""] * MOVES_PER_REQUEST_MAX),
        "UNAVAILABLE",
    ]


# Pin ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (NOT_TRIED, ExitCode.NO_ANSWER, f"{PAID} stays where it is: no leader"),
        (UNDER_WAY, ExitCode.NO_ANSWER, f"{PAID} is not known to have moved: the move is under"),
        (
            DeadlineExceeded("no answer"),
            ExitCode.NO_ANSWER,
            f"{PAID} is not known to have moved: no answer",
        ),
        (Unavailable("nobody there"), ExitCode.NO_ANSWER, "nobody there"),
    ],
)
def test_a_pin_says_what_became_of_the_move_and_that_the_rule_stands(
    discovery: Discovery, answer: LookupAnswer | MetadataError, code: ExitCode, said: str
) -> None:
    discovery.answers = {PAID: answer}

    result = nextgen("topics", "pin", PAID, "b")

    assert result.exit_code == code
    assert said in result.stderr
    assert "the rule stands" in result.stderr
    is_open = isinstance(answer, MetadataError) or answer.under_way
    assert (LOOK in result.stderr) is is_open


@pytest.mark.parametrize("answer", [REFUSED, NOT_READY])
@pytest.mark.parametrize("before", [(), ("a", "c")])
def test_a_pin_whose_move_is_refused_leaves_the_rule_that_was_there(
    discovery: Discovery, before: tuple[str, ...], answer: LookupAnswer
) -> None:
    discovery.policies = Policies(message_ttl_ms=7)
    if before:
        discovery.policies.placement.pinned_brokers.extend(before)
    expected = Policies.FromString(discovery.policies.SerializeToString())
    discovery.answers = {PAID: answer}

    result = nextgen("topics", "pin", PAID, "b")
    document = nextgen("topics", "pin", PAID, "b", "--json")

    assert (result.exit_code, document.exit_code) == (ExitCode.REFUSED, ExitCode.REFUSED)
    assert f"{PAID} stays where it is: {answer.message}" in result.stderr
    assert "the rule is taken back" in result.stderr
    assert discovery.policies == expected
    assert json.loads(document.stdout)["pinned_brokers"] == list(before)


def test_a_rule_that_another_set_meanwhile_is_not_taken_back(discovery: Discovery) -> None:
    discovery.answers = {PAID: REFUSED}
    moved = discovery._moved

    def set_meanwhile(move: TopicMove) -> LookupAnswer:
        del discovery.policies.placement.pinned_brokers[:]
        discovery.policies.placement.pinned_brokers.append("c")
        return moved(move)

    discovery._moved = set_meanwhile  # type: ignore[method-assign]
    nextgen("topics", "pin", PAID, "b")

    assert list(discovery.policies.placement.pinned_brokers) == ["c"]


def test_a_pin_whose_rule_is_refused_moves_nothing(discovery: Discovery) -> None:
    discovery.policies_error = Refused("NOT_ALLOWED", "no broker is called broker-77")

    result = nextgen("topics", "pin", PAID, "broker-77")

    assert result.exit_code == ExitCode.REFUSED
    assert "no broker is called broker-77" in result.stderr
    assert discovery.moves == []


def test_a_pin_moves_a_unit_once_however_often_it_is_asked(discovery: Discovery) -> None:
    discovery.answers = {PAID: DONE}

    result = nextgen("topics", "pin", PAID, "b", "c")

    assert result.exit_code == ExitCode.DONE
    assert discovery.moves == [TopicMove(topic=PAID, expected_epoch=7, asked_by="pin")]
    assert result.stdout == f"{PAID} may be on b, c only\n{PAID} went to b\n"


def test_a_pin_to_where_it_is_moves_nothing(discovery: Discovery) -> None:
    told = nextgen("topics", "pin", PAID, "a")
    document = nextgen("topics", "pin", PAID, "a", "--json")

    assert (told.exit_code, document.exit_code) == (ExitCode.DONE, ExitCode.DONE)
    assert discovery.moves == []
    assert "no unit of it is elsewhere" in told.stdout
    assert json.loads(document.stdout) == {"topic": PAID, "pinned_brokers": ["a"], "moves": []}


def test_a_pin_does_not_wait_for_ever_for_the_topics_place(
    discovery: Discovery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement_commands, "PLACES_TIMEOUT_MS", 1)
    discovery.is_telling = False

    result = nextgen("topics", "pin", PAID, "b")

    assert result.exit_code == ExitCode.NO_ANSWER
    assert f"the brokers of {PAID} were not read within 1 ms" in result.stderr
    assert "the rule stands" in result.stderr


def test_unpin_says_what_it_did(discovery: Discovery) -> None:
    result = nextgen("topics", "unpin", PAID)

    assert result.exit_code == ExitCode.DONE
    assert result.stdout == f"{PAID} is pinned to no broker and stays where it is\n"
    (written,) = [each for each in discovery.requests if isinstance(each, pb.SetPoliciesRequest)]
    assert not written.policies.HasField("placement")


# Unload ---------------------------------------------------------------------------------------


def test_an_unload_that_may_have_happened_is_not_refused(discovery: Discovery) -> None:
    unknown = UnassignOutcome(name=PAID, message="no answer", under_way=True)
    discovery.outcomes = {PAID: unknown, DUE: UnassignOutcome(name=DUE, message="not assigned")}

    one, both = nextgen("topics", "unload", PAID), nextgen("topics", "unload", PAID, DUE)

    assert (one.exit_code, both.exit_code) == (ExitCode.NO_ANSWER, ExitCode.REFUSED)
    assert LOOK in one.stderr
    assert f"{DUE}: not assigned\n" in both.stderr


def test_an_unload_without_an_answer_may_have_happened(discovery: Discovery) -> None:
    discovery.unload_error = DeadlineExceeded("no answer")

    result = nextgen("topics", "unload", PAID)

    assert discovery.are_repeatable == [True]
    assert result.exit_code == ExitCode.NO_ANSWER
    assert f"{PAID}: no answer" in result.stderr
    assert LOOK in result.stderr
