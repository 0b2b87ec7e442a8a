"""What is decided while a rule is being changed: behind an effective write nothing follows the
earlier rule any more, and no broker is given anything earlier.

Over the real streams between a home shard, its topic controller and its broker manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nextgen.client.wire.policies import policies_to_proto
from nextgen.kernel.errors import Unavailable
from nextgen.kernel.governance.auto_creation import ALLOW_PROPERTY
from nextgen.kernel.governance.policies import AutoCreation, PlacementRules, Policies
from nextgen.kernel.limits.placement import METADATA_USED_MS
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Kind
from shards.assignment.placement_policies import PlacementPolicies
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, FakeBroker, Harness, VirtualClock
from tests.support.shards.home_shards import CONTROLLERS
from tests.support.shards.streamed_homes import StreamedHomes
from tests.support.shards.streamed_shard import LED_S, in_streamed_shard, set_policies


def pinned(*brokers: str) -> Policies:
    return Policies(placement=PlacementRules(pinned_brokers=brokers))


async def start_brokers(shard: Harness) -> list[FakeBroker]:
    return [await shard.start_broker(f"broker-{number}") for number in (1, 2)]


def hold_controllers_reads(shard: Harness) -> asyncio.Event:
    """Keep what topic controllers read on its way until the event is set."""
    arrives = asyncio.Event()

    async def be_on_its_way(subscriber_id: str) -> None:
        if "topic-controller" in subscriber_id:
            await arrives.wait()

    shard.others.on_read = be_on_its_way
    return arrives


async def lead_anew(shard: Harness) -> None:
    """Be a leader for long that knows nothing of any namespace."""
    shard.next_term()
    for broker in shard.brokers.values():
        await broker.connect()
    await asyncio.sleep(LED_S)
    shard.others.reads.clear()


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def changed(
    shard: Harness, kind: Kind, name: str, policies: Policies
) -> Callable[[], Coroutine[Any, Any, list[str]]]:
    """Write policies; once that is effective return what says where units are placed behind it."""
    await set_policies(shard, kind, name, policies)
    position = shard.log.status.commit_position

    async def placed_behind() -> list[str]:
        events = await shard.events("topic_assigned", from_position=position + 1)
        return [event.topic_assigned.broker_id for event in events]

    return placed_behind


@pytest.mark.parametrize("arrives_s", [0.3, 3_600.0])
@pytest.mark.parametrize("is_reachable", [True, False])
@pytest.mark.parametrize(("kind", "name"), [(KIND_TENANT, "acme"), (KIND_NAMESPACE, NAMESPACE)])
@run_by(in_streamed_shard)
async def test_nothing_is_placed_by_what_was_read_before_an_effective_write(
    shard: Harness,
    homes: StreamedHomes,
    *,
    kind: Kind,
    name: str,
    is_reachable: bool,
    arrives_s: float,
) -> None:
    """1. A cold unit's rules are read. 2. While the answer is on its way a write changes them,
    whether the controller's stream comes through or not. 3. The answer arrives once the write is
    effective, or a little earlier."""
    await start_brokers(shard)
    first, second = await shard.create_topics("first", "second")
    await set_policies(shard, kind, name, pinned("broker-1"))
    await lead_anew(shard)
    arrives = hold_controllers_reads(shard)
    homes.is_reachable = lambda who: is_reachable or "topic-controller" not in who
    lookup = asyncio.create_task(shard.lookup(first))
    await turns()
    assert name in shard.others.reads
    write = asyncio.create_task(changed(shard, kind, name, pinned("broker-2")))
    await asyncio.wait((write,), timeout=arrives_s)
    arrives.set()
    await lookup
    placed_behind = await write
    (answer,) = await shard.lookup(second)

    assert answer.broker_id == "broker-2"
    assert set(await placed_behind()) == {"broker-2"}


@run_by(in_streamed_shard)
async def test_a_write_waits_for_each_controller_that_shares_a_nodes_stream(
    shard: Harness, homes: StreamedHomes
) -> None:
    await start_brokers(shard)
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    is_certain = asyncio.Event()
    other = PlacementPolicies(CONTROLLERS, homes, shard.others, VirtualClock(), is_certain.wait)
    async with other.deciding([NAMESPACE]):
        await asyncio.sleep(1.0)
        assert other.known(NAMESPACE) is not None
        write = asyncio.create_task(
            set_policies(shard, KIND_NAMESPACE, NAMESPACE, pinned("broker-2"), 60_000)
        )
        await asyncio.sleep(20.0)
        assert not write.done(), "the other one decides by the earlier policies"
    await asyncio.sleep(20.0)
    assert not write.done(), "what it decided may not be committed yet"
    is_certain.set()
    await write
    other.close()


async def forbid_creation(shard: Harness, *, by_property: bool) -> None:
    """Forbid topics on demand in ``NAMESPACE``; return once that is effective."""
    if by_property:
        body = pb.SetNamespaceProperties(name=NAMESPACE, properties={ALLOW_PROPERTY: "false"})
        command = pb.Command(set_namespace_properties=body)
        request = pb.ExecuteRequest(commands=[command], consistency=pb.CONSISTENCY_EFFECTIVE)
        await shard.ask(execute=request)
    else:
        forbids = Policies(auto_creation=AutoCreation(is_allowed=False))
        await set_policies(shard, KIND_NAMESPACE, NAMESPACE, forbids)


async def use(shard: Harness, name: str) -> str:
    """Use a topic, and return the code of the outcome."""
    request = pb.UseTopicsRequest(names=[f"persistent://{NAMESPACE}/{name}"])
    response = await shard.ask(use_topics=request)
    (outcome,) = response.use_topics.topics
    return outcome.rejection_code


@pytest.mark.parametrize("by_property", [True, False])
@run_by(in_streamed_shard)
async def test_what_is_followed_creates_nothing_behind_an_effective_write(
    shard: Harness, homes: StreamedHomes, *, by_property: bool
) -> None:
    await shard.create_topics("orders")
    assert await use(shard, "first") == ""
    await asyncio.sleep(1.0)
    assert shard.leader.policies.on_demand(NAMESPACE) is not None
    shard.others.reads.clear()
    assert await use(shard, "second") == ""

    await forbid_creation(shard, by_property=by_property)

    assert await use(shard, "third") == "NOT_FOUND"
    assert shard.others.reads == [], "its rule is known here"


@pytest.mark.parametrize("arrives_s", [0.3, 3_600.0])
@pytest.mark.parametrize("is_reachable", [True, False])
@pytest.mark.parametrize("by_property", [True, False])
@run_by(in_streamed_shard)
async def test_nothing_is_created_by_what_was_read_before_an_effective_write(
    shard: Harness,
    homes: StreamedHomes,
    *,
    by_property: bool,
    is_reachable: bool,
    arrives_s: float,
) -> None:
    """1. The rule for a topic on demand is read. 2. While the answer is on its way a write forbids
    it, whether the shard's stream comes through or not. 3. The answer arrives once the write is
    effective, or a little earlier."""
    await shard.create_topics("orders")
    await lead_anew(shard)
    arrives = hold_controllers_reads(shard)
    homes.is_reachable = lambda who: is_reachable or "topic-controller" not in who
    used = asyncio.create_task(use(shard, "first"))
    await turns()
    assert NAMESPACE in shard.others.reads
    write = asyncio.create_task(forbid_creation(shard, by_property=by_property))
    await asyncio.wait((write,), timeout=arrives_s)
    arrives.set()
    await asyncio.wait((used,))
    await write
    position = shard.log.status.commit_position

    assert await use(shard, "second") == "NOT_FOUND"
    behind = await shard.events("topic_created", from_position=position + 1)
    assert not behind


@run_by(in_streamed_shard)
async def test_an_effective_write_waits_for_what_is_being_decided_and_no_longer(
    shard: Harness, homes: StreamedHomes
) -> None:
    """The rules arrive, the unit is placed by the latest that is known, and the write is effective:
    no time-to-live has to pass."""
    await start_brokers(shard)
    (topic,) = await shard.create_topics("orders")
    await set_policies(shard, KIND_NAMESPACE, NAMESPACE, pinned("broker-1"))
    await lead_anew(shard)
    arrives = hold_controllers_reads(shard)
    lookup = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.1)
    write = asyncio.create_task(set_policies(shard, KIND_NAMESPACE, NAMESPACE, pinned("broker-2")))
    await asyncio.sleep(0.5)
    assert not write.done()
    assert not lookup.done()
    arrives.set()
    await asyncio.sleep(0.3)

    assert write.done()
    assert (await lookup)[0].broker_id == "broker-2"


@pytest.mark.parametrize("is_reachable", [True, False])
@pytest.mark.parametrize("kind", [KIND_NAMESPACE, KIND_TOPIC])
@run_by(in_streamed_shard)
async def test_a_move_is_decided_by_the_rules_of_its_last_step(
    shard: Harness,
    homes: StreamedHomes,
    *,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    is_reachable: bool,
) -> None:
    """1. A move is planned, and its target gets ready. 2. A write forbids the target, and is
    effective, whether the controller's stream comes through or not. 3. The target is ready."""
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    await shard.start_broker("broker-2")
    homes.is_reachable = lambda who: is_reachable or "topic-controller" not in who
    await lead_anew(shard)
    is_asked, is_ready = asyncio.Event(), asyncio.Event()
    assign = shard.others.assign

    async def get_ready(request: pb.AssignRequest, *, timeout_ms: int) -> pb.AssignResponse:
        if request.prepared:
            is_asked.set()
            await is_ready.wait()
        return await assign(request, timeout_ms=timeout_ms)

    monkeypatch.setattr(shard.others, "assign", get_ready)
    moving = asyncio.create_task(shard.move((topic, "broker-2")))
    await is_asked.wait()
    name = NAMESPACE if kind == KIND_NAMESPACE else topic
    placed_behind = await changed(shard, kind, name, pinned("broker-1"))
    is_ready.set()
    (answer,) = await moving

    assert answer.rejection_code == "NOT_ALLOWED"
    assert await placed_behind() == []


@run_by(in_streamed_shard)
async def test_a_broker_that_is_given_a_topic_late_is_given_it_as_it_is(
    shard: Harness, homes: StreamedHomes
) -> None:
    """1. A move is committed, its target cannot be told, and its owner dies. 2. The topic's
    policies are changed, and that is effective: nobody has the topic. 3. The target can be told."""
    owner = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    target = await shard.start_broker("broker-2")
    shard.others.assign_error = Unavailable("its manager is being elected")
    await shard.move((topic, "broker-2"))
    owner.vanish()
    await set_policies(shard, KIND_TOPIC, topic, Policies(message_ttl_ms=7), 30_000)
    shard.others.assign_error = None
    await asyncio.sleep(30.0)

    given = [each.assign.topic for each in target.deliveries if each.HasField("assign")]
    assert given
    assert {each.policies.message_ttl_ms for each in given} == {7}


@run_by(in_streamed_shard)
async def test_a_broker_gets_no_assignment_of_an_uncommitted_topic(
    shard: Harness, homes: StreamedHomes
) -> None:
    """What is given late is given as it is decided, once that is certain."""
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    target = await shard.start_broker("broker-2")
    shard.others.assign_error = Unavailable("its manager is being elected")
    await shard.move((topic, "broker-2"))
    shard.log.hold_commits()
    write = asyncio.create_task(set_policies(shard, KIND_TOPIC, topic, Policies(message_ttl_ms=7)))
    shard.others.assign_error = None
    await asyncio.sleep(4.0)
    assert target.assigned == []
    shard.log.release_commits()
    await write
    await asyncio.sleep(30.0)

    given = [each.assign.topic for each in target.deliveries if each.HasField("assign")]
    assert {each.policies.message_ttl_ms for each in given} == {7}


@run_by(in_streamed_shard)
async def test_what_was_read_for_a_broker_before_a_long_wait_is_read_again(
    shard: Harness, homes: StreamedHomes
) -> None:
    """1. A namespace is read for a broker whose room is not known yet. 2. A write changes it. Its
    home waits for a while only for who reads and does not watch. 3. There is room."""
    broker = await shard.start_broker("broker-1", capacity_units=2)
    first, second = await shard.create_topics("first", "second")
    await shard.lookup(first)
    namespaces_before = len(told_of_namespace(broker))
    shard.next_term()
    await broker.connect()
    assert broker.is_asked_what_it_holds
    await asyncio.sleep(LED_S)
    session = shard.leader.brokers.sessions.live("broker-1", broker.session_id)
    session.reported.clear()
    session.metadata.awaits_report, session.metadata.units_unreported = True, None
    lookup = asyncio.create_task(shard.lookup(second))
    await asyncio.sleep(0.5)
    assert NAMESPACE in shard.others.reads
    policies = policies_to_proto(Policies(message_ttl_ms=7))
    body = pb.SetPolicies(kind=KIND_NAMESPACE, name=NAMESPACE, policies=policies)
    await shard.execute(set_policies=body)
    await asyncio.sleep(METADATA_USED_MS / 1000)
    session.metadata.awaits_report, session.metadata.units_unreported = False, 1
    session.reported.set()
    (answer,) = await lookup

    assert answer.broker_id == "broker-1"
    told = told_of_namespace(broker)[namespaces_before:]
    assert [each.policies.message_ttl_ms for each in told] == [7]


@run_by(in_streamed_shard)
async def test_a_manager_whose_stream_comes_late_is_waited_for(
    shard: Harness, homes: StreamedHomes
) -> None:
    """It has read a namespace, its broker has it; that it is watched takes three seconds more."""
    comes_at = shard.clock.monotonic() + 3.0
    homes.is_reachable = lambda who: (
        "broker-manager" not in who or shard.clock.monotonic() >= comes_at
    )
    broker = await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)

    await set_policies(shard, KIND_NAMESPACE, NAMESPACE, Policies(message_ttl_ms=7))

    assert [each.policies.message_ttl_ms for each in told_of_namespace(broker)] == [0, 7]


def told_of_namespace(broker: FakeBroker) -> list[Any]:
    return [each.namespace for each in broker.deliveries if each.HasField("namespace")]
