"""The door of a connection: refusals, order while permissions are read, revocation."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.governance.access import CLUSTER, Action, Resource
from nextgen.pulsar.admission import command_access
from nextgen.pulsar.admission.command_access import Kept
from nextgen.pulsar.connection import PulsarConnection
from nextgen.pulsar.frames import encode_command, encode_frame
from nextgen.pulsar.greeting import Greeting
from nextgen.pulsar.inbound import InboundBudget
from nextgen.pulsar.keep_alive import KeepAlive
from protos.pulsar import PulsarApi_pb2 as pulsar
from protos.pulsar.PulsarApi_pb2 import BaseCommand
from tests.support.authorization import AllowList
from tests.support.callers.role_proofs import authenticator, token_of
from tests.support.pulsar.frames import connect_frame
from tests.support.pulsar.transport import MemoryTransport

ROLE = "anonymous"
PAID = "persistent://acme/orders/paid"
OPEN = Resource.topic(PAID)
SLOW = Resource.topic("persistent://acme/slow/paid")
NAMESPACE = Resource.namespace("acme/orders")


class RecordingConnection(PulsarConnection):
    """Remembers the commands that it may handle, and keeps what they use."""

    def __init__(self, keep_alive: KeepAlive, greeting: Greeting) -> None:
        super().__init__(keep_alive, greeting)
        self.handled: list[str] = []
        self.kept: list[Kept] = []

    def handle(self, command: BaseCommand, payload: bytes) -> None:
        self.handled.append(BaseCommand.Type.Name(command.type) + payload.decode())
        if command.type in (BaseCommand.PRODUCER, BaseCommand.SUBSCRIBE):
            self.kept.append(self.keep(command))


class World:
    """A connection and what its client may do."""

    def __init__(self, inbound: InboundBudget | None = None) -> None:
        self.allow = AllowList()
        self.allow.allow(ROLE, Action.CONNECT, CLUSTER)
        greeting = Greeting(authorizer=self.allow)
        self.connection = RecordingConnection(KeepAlive(inbound=inbound), greeting)
        self.transport = MemoryTransport(self.connection)
        self.transport.receive(connect_frame())
        self.transport.writes.clear()

    def receive(self, *frames: bytes) -> None:
        self.transport.receive(b"".join(frames))

    def answers(self) -> list[BaseCommand]:
        commands = self.transport.commands()
        self.transport.writes.clear()
        return commands


@pytest.fixture
async def world() -> World:
    return World()


def producer(topic: Resource = OPEN, number: int = 1) -> bytes:
    return encode_command(
        BaseCommand(
            type=BaseCommand.PRODUCER,
            producer=pulsar.CommandProducer(
                topic=topic.name, producer_id=number, request_id=number
            ),
        )
    )


def subscribe(topic: Resource = OPEN, number: int = 1) -> bytes:
    return encode_command(
        BaseCommand(
            type=BaseCommand.SUBSCRIBE,
            subscribe=pulsar.CommandSubscribe(
                topic=topic.name,
                subscription="s",
                subType=pulsar.CommandSubscribe.Exclusive,
                consumer_id=number,
                request_id=number,
            ),
        )
    )


def send(text: str) -> bytes:
    command = BaseCommand(
        type=BaseCommand.SEND,
        send=pulsar.CommandSend(producer_id=1, sequence_id=0, num_messages=1),
    )
    return encode_frame(command, text.encode())


FLOW = encode_command(
    BaseCommand(type=BaseCommand.FLOW, flow=pulsar.CommandFlow(consumer_id=1, messagePermits=1))
)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# Refusals ----------------------------------------------------------------------------------


REFUSED = [
    (
        BaseCommand(
            type=BaseCommand.LOOKUP,
            lookupTopic=pulsar.CommandLookupTopic(topic=PAID, request_id=7),
        ),
        lambda answer: (
            answer.lookupTopicResponse.request_id,
            answer.lookupTopicResponse.error,
            answer.lookupTopicResponse.message,
        ),
    ),
    (
        BaseCommand(
            type=BaseCommand.PARTITIONED_METADATA,
            partitionMetadata=pulsar.CommandPartitionedTopicMetadata(topic=PAID, request_id=7),
        ),
        lambda answer: (
            answer.partitionMetadataResponse.request_id,
            answer.partitionMetadataResponse.error,
            answer.partitionMetadataResponse.message,
        ),
    ),
    (
        BaseCommand(
            type=BaseCommand.GET_SCHEMA,
            getSchema=pulsar.CommandGetSchema(topic=PAID, request_id=7),
        ),
        lambda answer: (
            answer.getSchemaResponse.request_id,
            answer.getSchemaResponse.error_code,
            answer.getSchemaResponse.error_message,
        ),
    ),
    (
        BaseCommand(
            type=BaseCommand.GET_OR_CREATE_SCHEMA,
            getOrCreateSchema=pulsar.CommandGetOrCreateSchema(
                topic=PAID,
                request_id=7,
                schema=pulsar.Schema(name="", schema_data=b"", type=pulsar.Schema.String),
            ),
        ),
        lambda answer: (
            answer.getOrCreateSchemaResponse.request_id,
            answer.getOrCreateSchemaResponse.error_code,
            answer.getOrCreateSchemaResponse.error_message,
        ),
    ),
    (
        BaseCommand(
            type=BaseCommand.SCALABLE_TOPIC_LOOKUP,
            scalableTopicLookup=pulsar.CommandScalableTopicLookup(topic=PAID, session_id=7),
        ),
        lambda answer: (
            answer.scalableTopicUpdate.session_id,
            answer.scalableTopicUpdate.error,
            answer.scalableTopicUpdate.message,
        ),
    ),
    (
        BaseCommand(
            type=BaseCommand.SCALABLE_TOPIC_SUBSCRIBE,
            scalableTopicSubscribe=pulsar.CommandScalableTopicSubscribe(
                topic=PAID,
                request_id=7,
                subscription="s",
                consumer_name="c",
                consumer_id=1,
                consumer_type=pulsar.STREAM,
            ),
        ),
        lambda answer: (
            answer.scalableTopicSubscribeResponse.request_id,
            answer.scalableTopicSubscribeResponse.error,
            answer.scalableTopicSubscribeResponse.message,
        ),
    ),
    (
        BaseCommand(
            type=BaseCommand.WATCH_SCALABLE_TOPICS,
            watchScalableTopics=pulsar.CommandWatchScalableTopics(
                namespace="acme/orders", watch_id=7
            ),
        ),
        lambda answer: (
            answer.watchScalableTopicsUpdate.watch_id,
            answer.watchScalableTopicsUpdate.error,
            answer.watchScalableTopicsUpdate.message,
        ),
    ),
    (
        BaseCommand(
            type=BaseCommand.GET_TOPICS_OF_NAMESPACE,
            getTopicsOfNamespace=pulsar.CommandGetTopicsOfNamespace(
                namespace="acme/orders", request_id=7
            ),
        ),
        lambda answer: (answer.error.request_id, answer.error.error, answer.error.message),
    ),
    (
        BaseCommand(
            type=BaseCommand.WATCH_TOPIC_LIST,
            watchTopicList=pulsar.CommandWatchTopicList(
                namespace="acme/orders", request_id=7, watcher_id=1, topics_pattern=".*"
            ),
        ),
        lambda answer: (answer.error.request_id, answer.error.error, answer.error.message),
    ),
    (
        BaseCommand(
            type=BaseCommand.PRODUCER,
            producer=pulsar.CommandProducer(topic=PAID, request_id=7, producer_id=1),
        ),
        lambda answer: (answer.error.request_id, answer.error.error, answer.error.message),
    ),
    (
        BaseCommand(
            type=BaseCommand.SUBSCRIBE,
            subscribe=pulsar.CommandSubscribe(
                topic=PAID,
                request_id=7,
                consumer_id=1,
                subscription="s",
                subType=pulsar.CommandSubscribe.Shared,
            ),
        ),
        lambda answer: (answer.error.request_id, answer.error.error, answer.error.message),
    ),
]


def test_every_command_that_needs_something_is_among_the_refused():
    assert {command.type for command, _ in REFUSED} == set(command_access.NEEDS)


@pytest.mark.parametrize(
    ("command", "seen"), REFUSED, ids=[BaseCommand.Type.Name(each.type) for each, _ in REFUSED]
)
async def test_what_a_role_may_not_do_is_refused_in_the_commands_own_answer(world, command, seen):
    world.receive(encode_command(command), encode_command(command))

    answers = [seen(answer) for answer in world.answers()]
    assert [answer[:2] for answer in answers] == [(7, pulsar.AuthorizationError)] * 2
    assert all(answer[2].startswith(f"role {ROLE} has no permission to ") for answer in answers)
    assert world.connection.handled == []
    assert world.connection.is_open


@pytest.mark.parametrize(
    ("command", "seen"), REFUSED, ids=[BaseCommand.Type.Name(each.type) for each, _ in REFUSED]
)
async def test_while_permissions_cannot_be_read_a_client_is_told_to_try_again(world, command, seen):
    world.allow.unavailable |= {OPEN, NAMESPACE}
    world.receive(encode_command(command))
    await turns()

    (answer,) = [seen(answer) for answer in world.answers()]
    assert answer == (7, pulsar.MetadataError, "permissions cannot be read")
    assert world.connection.handled == []
    assert world.transport.is_reading_paused is False


async def test_a_bad_name_is_refused_as_such_and_nobody_is_asked(world):
    asked = len(world.allow.asked)
    world.receive(producer(Resource.topic("persistent://acme//x")))

    (answer,) = world.answers()
    assert (answer.error.request_id, answer.error.error) == (1, pulsar.InvalidTopicName)
    assert len(world.allow.asked) == asked


async def test_a_command_that_the_table_does_not_have_is_refused(world, monkeypatch):
    fewer = {kind: needs for kind, needs in command_access.NEEDS.items()}
    del fewer[BaseCommand.PRODUCER]
    monkeypatch.setattr(command_access, "NEEDS", fewer)
    world.allow.allow(ROLE, Action.PRODUCE, OPEN)
    world.receive(producer())

    (answer,) = world.answers()
    assert answer.error.error == pulsar.AuthorizationError
    assert world.connection.handled == []


async def test_a_role_that_may_not_connect_is_refused_and_closed():
    allow = AllowList()
    connection = RecordingConnection(KeepAlive(), Greeting(authorizer=allow))
    transport = MemoryTransport(connection)
    transport.receive(connect_frame())

    (answer,) = transport.commands()
    assert answer.error.error == pulsar.AuthorizationError
    assert answer.error.message == "role anonymous has no permission to connect the cluster"
    assert transport.is_closed
    await turns()
    assert allow.sessions == []


async def test_commands_of_what_was_admitted_are_not_asked_for(world):
    world.allow.allow(ROLE, Action.PRODUCE, OPEN)
    world.allow.allow(ROLE, Action.CONSUME, OPEN)
    world.receive(producer(), subscribe())
    asked = len(world.allow.asked)
    world.receive(*[send("x") for _ in range(10)], *[FLOW] * 10)

    assert len(world.connection.handled) == 22
    assert len(world.allow.asked) == asked


async def test_behind_a_proxy_the_client_and_the_proxy_have_to_be_allowed():
    allow = AllowList()
    greeting = Greeting(
        authenticator=authenticator(proxy_roles=frozenset({"proxy"})), authorizer=allow
    )
    connect = connect_frame(
        auth_method_name="token", auth_data=token_of("proxy"), original_principal="ada"
    )
    for role in ("ada", "proxy"):
        allow.allow(role, Action.CONNECT, CLUSTER)
    connection = RecordingConnection(KeepAlive(), greeting)
    transport = MemoryTransport(connection)
    allow.allow("ada", Action.PRODUCE, OPEN)
    transport.receive(connect + producer())

    refusal = transport.commands()[-1].error
    assert refusal.error == pulsar.AuthorizationError
    assert refusal.message.startswith("role ada behind proxy proxy has no permission to produce")

    allow.allow("proxy", Action.PRODUCE, OPEN)
    transport.receive(producer())
    assert connection.handled == ["PRODUCER"]

    allow.revoke("proxy", Action.PRODUCE, OPEN)
    assert transport.was_aborted


# Order -------------------------------------------------------------------------------------


async def test_commands_behind_one_that_waits_keep_their_order(world):
    world.allow.allow(ROLE, Action.PRODUCE, OPEN, SLOW)
    world.allow.allow(ROLE, Action.CONSUME, SLOW)
    world.allow.unknown.add(SLOW)
    world.allow.known.clear()
    world.receive(send("a"), producer(SLOW, 2), send("b"), producer(OPEN, 3), send("c"), FLOW)

    assert world.connection.handled == ["SENDa"]
    assert world.transport.is_reading_paused

    world.allow.known.set()
    await turns()

    assert world.connection.handled == ["SENDa", "PRODUCER", "SENDb", "PRODUCER", "SENDc", "FLOW"]
    assert not world.transport.is_reading_paused


async def test_a_second_command_that_waits_holds_those_behind_it_again(world):
    other = Resource.topic("persistent://acme/other/paid")
    world.allow.allow(ROLE, Action.PRODUCE, SLOW, other)
    world.allow.unknown |= {SLOW, other}
    world.allow.known.clear()
    world.receive(producer(SLOW, 1), send("a"), producer(other, 2), send("b"))

    await turns()
    gate = world.allow.known
    world.allow.known = asyncio.Event()
    gate.set()
    await turns()
    assert world.connection.handled == ["PRODUCER", "SENDa"]
    assert world.transport.is_reading_paused

    world.allow.known.set()
    await turns()
    assert world.connection.handled == ["PRODUCER", "SENDa", "PRODUCER", "SENDb"]


async def test_one_that_is_refused_after_it_waited_does_not_stop_those_behind_it(world):
    world.allow.unknown.add(SLOW)
    world.allow.known.clear()
    world.receive(producer(SLOW, 4), send("a"))
    world.allow.known.set()
    await turns()

    (answer,) = world.answers()
    assert (answer.error.request_id, answer.error.error) == (4, pulsar.AuthorizationError)
    assert world.connection.handled == ["SENDa"]


async def test_frames_that_arrive_although_reading_is_held_wait_too(world):
    world.allow.allow(ROLE, Action.PRODUCE, SLOW)
    world.allow.unknown.add(SLOW)
    world.allow.known.clear()
    world.receive(producer(SLOW))
    world.connection.data_received(send("a"))
    world.connection.data_received(send("b") + b"\x00\x00")
    world.allow.known.set()
    await turns()
    world.connection.data_received(send("c")[2:])

    assert world.connection.handled == ["PRODUCER", "SENDa", "SENDb", "SENDc"]


async def test_bytes_that_are_no_frame_end_the_connection_behind_what_waits(world):
    world.allow.allow(ROLE, Action.PRODUCE, SLOW)
    world.allow.unknown.add(SLOW)
    world.allow.known.clear()
    world.receive(producer(SLOW), send("a"), b"\xff" * 8)
    world.connection.data_received(b"\xff" * 8)
    assert world.connection.is_open

    world.allow.known.set()
    await turns()

    assert world.connection.handled == ["PRODUCER", "SENDa"]
    assert not world.connection.is_open


async def test_what_waits_counts_as_unfinished_bytes_and_is_dropped_beyond_them():
    budget = InboundBudget(unfinished_bytes_max=1_000)
    world = World(budget)
    world.allow.unknown.add(SLOW)
    world.allow.known.clear()
    world.receive(producer(SLOW), send("x" * 500))
    held = budget.unfinished_bytes
    assert 500 < held <= 1_000
    assert world.connection.is_open

    world.connection.data_received(send("x" * 500))

    assert not world.connection.is_open
    await turns()
    assert budget.unfinished_bytes == 0
    assert world.allow.sessions == []


async def test_bytes_are_counted_no_more_once_they_are_handled():
    budget = InboundBudget()
    world = World(budget)
    world.allow.allow(ROLE, Action.PRODUCE, SLOW)
    world.allow.unknown.add(SLOW)
    world.allow.known.clear()
    world.receive(producer(SLOW), send("x" * 500))
    assert budget.unfinished_bytes > 500
    world.allow.known.set()
    await turns()

    assert budget.unfinished_bytes == 0


async def test_a_client_that_leaves_while_it_waits_is_forgotten(world):
    world.allow.unknown.add(SLOW)
    world.allow.known.clear()
    world.receive(producer(SLOW), send("a"))
    world.connection.abort("the test wants it")
    await turns()
    world.allow.known.set()
    await turns()

    assert world.connection.handled == []
    assert world.allow.sessions == []


async def test_a_client_is_not_silent_while_it_waits(world):
    world.allow.unknown.add(SLOW)
    world.allow.known.clear()
    world.receive(producer(SLOW))
    for _ in range(3):
        world.connection.check_alive()

    assert world.connection.is_open


async def test_a_mistake_of_ours_while_asking_is_answered(world, monkeypatch):
    async def fail(*_):
        raise RuntimeError("oops")

    world.allow.unknown.add(SLOW)
    monkeypatch.setattr(world.allow, "check", fail)
    world.receive(producer(SLOW), send("a"))
    await turns()

    (answer,) = world.answers()
    assert answer.error.error == pulsar.MetadataError
    assert world.connection.handled == ["SENDa"]


async def test_both_of_two_needs_have_to_be_allowed_still_when_the_second_is_known(
    world, monkeypatch
):
    world.allow.allow(ROLE, Action.PRODUCE, OPEN)
    world.allow.allow(ROLE, Action.CONSUME, OPEN)
    world.allow.unknown.add(OPEN)
    checked = world.allow.check

    async def check(principal, action, resource, subscription=""):
        await checked(principal, action, resource, subscription)
        if action is Action.CONSUME:
            world.allow.revoke(ROLE, Action.PRODUCE, OPEN)

    monkeypatch.setattr(world.allow, "check", check)
    command = pulsar.CommandProducer(
        topic=PAID, producer_id=1, request_id=1, initial_subscription_name="s"
    )
    world.receive(encode_command(BaseCommand(type=BaseCommand.PRODUCER, producer=command)))
    await turns()

    (answer,) = world.answers()
    assert answer.error.error == pulsar.AuthorizationError
    assert world.connection.handled == []


# Revocation --------------------------------------------------------------------------------


async def test_a_connection_ends_at_once_when_what_it_uses_is_taken_back(world):
    world.allow.allow(ROLE, Action.PRODUCE, OPEN)
    world.receive(producer())
    world.allow.revoke(ROLE, Action.PRODUCE, OPEN)

    assert world.transport.was_aborted
    world.connection.data_received(send("late"))
    assert world.connection.handled == ["PRODUCER"]


async def test_a_connection_goes_on_when_what_it_used_before_is_taken_back(world):
    world.allow.allow(ROLE, Action.PRODUCE, OPEN)
    world.receive(producer())
    world.connection.kept[0].release()
    world.allow.revoke(ROLE, Action.PRODUCE, OPEN)

    assert world.connection.is_open


async def test_without_an_authorizer_everything_is_handled():
    connection = RecordingConnection(KeepAlive(), Greeting())
    transport = MemoryTransport(connection)
    transport.receive(connect_frame() + producer() + subscribe())

    assert connection.handled == ["PRODUCER", "SUBSCRIBE"]
    assert connection.lookable is None
