"""Events of a later level wait until every member of the group is known to know them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nextgen.kernel.errors import Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.events.levels import EVENT_LEVEL, EVENT_LEVEL_UNREPORTED
from nextgen.kernel.limits.placement import LOAD_EVENT_MS_MIN
from nextgen.replication.ports import ChangeKind, MemberChange, NodeId
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from protos.nextgen.v1 import policies_pb2
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.events_pb2 import LoadReport
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC
from shards.domain.broker_session import BrokerDrainSet, BrokerSessionEstablished, Endpoints
from shards.domain.parent_gate import ParentGateClosed, ParentGateOpened, ParentKind
from shards.domain.tenant import TenantCreated
from shards.state.event_levels import EVENT_LEVELS, level_of
from shards.wire import event as wire_event
from tests.support.scenarios import run_by
from tests.support.shards.events import HISTORY
from tests.support.shards.harness import FakeBroker, Harness, in_shard
from tests.support.shards.world import ShardReplica, World

OLDER = NodeId("node-1")
TOPIC = "persistent://acme/orders/paid"
DRAINED = BrokerDrainSet("b-1", "s-1", True, 0, 1)

FIRST_LEVEL = {
    "tenant_created",
    "tenant_properties_set",
    "tenant_deletion_started",
    "tenant_deletion_aborted",
    "tenant_deleted",
    "namespace_created",
    "namespace_properties_set",
    "namespace_deletion_started",
    "namespace_deletion_aborted",
    "namespace_deleted",
    "topic_created",
    "topic_properties_set",
    "topic_deleted",
    "topic_assigned",
    "topic_unassigned",
    "broker_session_established",
    "broker_session_ended",
    "capacity_granted",
    "slots_adopted",
    "parent_gate_opened",
    "parent_gate_closed",
}
"""What the release that says no level reads from its log."""

SECOND_LEVEL = {"policy_set", "policy_cleared", "broker_drain_set", "broker_load_reported"}
FIFTH_LEVEL = {"topic_partitions_grown"}
SIXTH_LEVEL = {"restore_marked"}
SEVENTH_LEVEL = {
    "scalable_topic_created",
    "scalable_topic_deleted",
    "layout_change_planned",
    "segment_children_ready",
    "segment_sealed",
    "layout_changed",
    "layout_change_abandoned",
    "segment_storage_removed",
    "scalable_subscription_created",
    "scalable_subscription_sought",
    "scalable_subscription_ready",
    "scalable_subscription_deletion_started",
    "scalable_subscription_deleted",
    "segment_drained",
    "scalable_consumer_registered",
    "scalable_consumer_left",
    "segments_assigned",
}
EIGHTH_LEVEL = {"segment_prune_postponed", "scalable_topic_restored"}
NINTH_LEVEL = {
    "segment_loads_recorded",
    "auto_scale_decided",
    "shadow_source_created",
    "shadow_shard_recorded",
    "shadow_source_held",
    "shadow_source_removed",
}
TENTH_LEVEL = {"broker_capacity_set"}
ELEVENTH_LEVEL = {
    "slots_incoming",
    "slot_rows_copied",
    "slots_released",
    "slots_refused",
    "slots_reclaimed",
    "slot_rows_removed",
    "topic_name_pointed",
    "topic_name_freed",
    "topic_renamed",
}
LEVELS = [
    (1, FIRST_LEVEL),
    (2, SECOND_LEVEL),
    (5, FIFTH_LEVEL),
    (6, SIXTH_LEVEL),
    (7, SEVENTH_LEVEL),
    (8, EIGHTH_LEVEL),
    (9, NINTH_LEVEL),
    (10, TENTH_LEVEL),
    (11, ELEVENTH_LEVEL),
]


# The table ---------------------------------------------------------------------------------------


def test_every_event_that_can_be_written_has_a_level_that_this_program_knows():
    assert set(EVENT_LEVELS) == set(wire_event._ENCODERS)
    assert set(EVENT_LEVELS.values()) <= set(range(1, EVENT_LEVEL + 1))


@pytest.mark.parametrize(("level", "names"), LEVELS)
def test_a_stored_event_keeps_the_level_it_came_in_with(level, names):
    stored = {
        wire_event.stored_name(event) for event in HISTORY if EVENT_LEVELS[type(event)] == level
    }

    assert stored == names


def test_every_event_that_can_be_read_is_pinned_to_one_level():
    pinned = [name for _, names in LEVELS for name in names]
    assert len(pinned) == len(set(pinned))
    assert set(wire_event._DECODERS) == set(pinned)


def test_a_record_has_the_level_of_its_latest_event():
    created = TenantCreated("t-1", "acme")

    assert [level_of(events) for events in ([], [created], [created, DRAINED])] == [0, 1, 2]


@pytest.mark.parametrize("event", [ParentGateOpened, ParentGateClosed])
def test_a_gate_of_a_source_of_shadows_is_later_than_other_gates(event):
    gates = {kind: event(kind, "name", "id", 0) for kind in ParentKind}
    created = TenantCreated("t-1", "acme")

    levels = {kind: level_of([created, gate]) for kind, gate in gates.items()}

    assert levels == {ParentKind.TENANT: 1, ParentKind.NAMESPACE: 1, ParentKind.TOPIC: 9}


# The gate ----------------------------------------------------------------------------------------


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(shards=1)
    yield made
    made.close()


def hold_back(shard: ShardReplica | Harness, level: int = EVENT_LEVEL_UNREPORTED) -> None:
    shard.log.event_levels[OLDER] = level


def let_go(shard: ShardReplica | Harness) -> None:
    shard.log.event_levels.clear()


@pytest.mark.parametrize(("kind", "level"), [("", 1), ("stock", 11)])
def test_the_session_of_a_stock_broker_waits_for_members_that_know_kinds(kind, level):
    endpoints = Endpoints("pulsar://b:1", "b:2", "")
    began = BrokerSessionEstablished("b-1", "s-1", 1, endpoints, 10, "", kind=kind)

    assert level_of([began]) == level


async def test_an_event_that_is_too_late_for_a_member_changes_nothing(world: World) -> None:
    shard = world.shards[1]
    await shard.state.proposer.confirm()
    hold_back(shard)
    before = shard.log.status.last_index

    with pytest.raises(Refused, match="shard 1: node-1 is not known to know broker_drain_set"):
        shard.state.proposer.propose([TenantCreated("t-1", "acme"), DRAINED])

    await asyncio.sleep(0)
    assert shard.state.reads.load_tenant("acme") is None
    assert shard.log.status.last_index == before
    await shard.state.proposer.propose([TenantCreated("t-1", "acme")])
    assert shard.state.reads.load_tenant("acme") is not None


async def test_a_learner_holds_back_as_a_voter_does(world: World) -> None:
    shard = world.shards[1]
    learner = NodeId("learner-1")
    shard.log.event_levels[learner] = EVENT_LEVEL_UNREPORTED
    assert shard.log.event_level == EVENT_LEVEL
    await shard.log.change_members(MemberChange(ChangeKind.ADD_LEARNER, learner))

    with pytest.raises(Refused, match="learner-1 is not known to know"):
        shard.state.proposer.propose([DRAINED])


async def test_members_are_not_looked_at_for_events_of_the_first_level(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = world.shards[1]
    monkeypatch.setattr(type(shard.log), "event_level", property(lambda _: pytest.fail("asked")))

    await shard.state.proposer.propose([TenantCreated("t-1", "acme")])


def setting(kind: int, name: str, command_id: bytes = b"", ttl_ms: int = 5) -> pb.Command:
    said = policies_pb2.Policies(message_ttl_ms=ttl_ms) if ttl_ms else None
    body = pb.SetPolicies(kind=kind, name=name, policies=said)
    return pb.Command(command_id=command_id, set_policies=body)


async def inventory(world: World) -> ShardReplica:
    await world.create_tenant("acme")
    await world.create_namespace("acme/orders")
    await world.create_topic(TOPIC)
    return world.shards[1]


@pytest.mark.parametrize(
    ("kind", "name"), [(KIND_TENANT, "acme"), (KIND_NAMESPACE, "acme/orders"), (KIND_TOPIC, TOPIC)]
)
@pytest.mark.parametrize("command_id", [b"", b"i" * 16])
async def test_policies_are_refused_by_name_while_a_replica_is_older(
    world: World, kind: int, name: str, command_id: bytes
) -> None:
    shard = await inventory(world)
    hold_back(shard)

    result = await world.run(shard, setting(kind, name, command_id))

    assert result.rejection_code == RejectionCode.NOT_ALLOWED
    assert result.message == (
        "shard 1: node-1 is not known to know policy_set events: upgrade or start it first"
    )
    let_go(shard)
    assert (await world.run(shard, setting(kind, name, b"j" * 16))).rejection_code == ""


async def test_policies_that_were_set_are_not_cleared_while_a_replica_is_older(
    world: World,
) -> None:
    shard = await inventory(world)
    await world.run(shard, setting(KIND_TENANT, "acme"))
    hold_back(shard)

    result = await world.run(shard, setting(KIND_TENANT, "acme", ttl_ms=0))

    assert "policy_cleared events" in result.message


async def test_a_command_that_was_refused_by_it_stays_refused(world: World) -> None:
    """Its caller was answered so: an attempt still under way must not set anything later."""
    shard = await inventory(world)
    hold_back(shard)
    command = setting(KIND_TENANT, "acme", b"i" * 16)
    first = await world.run(shard, command)
    let_go(shard)
    shard.next_term()

    again = await world.run(shard, command)

    assert again.rejection_code == first.rejection_code == RejectionCode.NOT_ALLOWED
    tenant = shard.state.reads.load_tenant("acme")
    assert tenant is not None
    assert tenant.policies_version == 0


@pytest.mark.parametrize("command_id", [b"", b"i" * 16])
async def test_the_other_commands_of_a_request_are_carried_out(
    world: World, command_id: bytes
) -> None:
    shard = await inventory(world)
    hold_back(shard)
    before = pb.Command(create_tenant=pb.CreateTenant(name="before"))
    after = pb.Command(create_tenant=pb.CreateTenant(name="after"))
    commands = [before, setting(KIND_TENANT, "acme", command_id), after]

    response = await shard.service.execute(pb.ExecuteRequest(commands=commands))

    codes = [result.rejection_code for result in response.results]
    assert codes == ["", RejectionCode.NOT_ALLOWED, ""]
    shard.next_term()
    assert shard.state.reads.load_tenant("before") is not None
    assert shard.state.reads.load_tenant("after") is not None


# Brokers -----------------------------------------------------------------------------------------


@run_by(in_shard)
async def test_a_drain_is_refused_by_name_and_begins_later(shard: Harness) -> None:
    for broker_id in ("broker-1", "broker-2"):
        await shard.start_broker(broker_id)
    hold_back(shard)

    with pytest.raises(Refused, match="node-1 is not known to know broker_drain_set events"):
        await shard.ask(drain=pb.DrainRequest(broker_id="broker-1"))

    assert await shard.events("broker_drain_set") == []
    session = shard.leader.state.reads.load_session("broker-1")
    assert session is not None
    assert not session.draining
    let_go(shard)
    response = await shard.ask(drain=pb.DrainRequest(broker_id="broker-1"))
    assert response.drain.broker.draining


@run_by(in_shard)
async def test_a_broker_that_wishes_to_be_drained_keeps_its_session(shard: Harness) -> None:
    """It sees that it does not drain, and stops without."""
    broker = await shard.start_broker("broker-1")
    await shard.start_broker("broker-2")
    hold_back(shard)

    assert broker.connection is not None
    wish = broker_pb.BrokerMessage(drain=broker_pb.DrainWish(units_per_second=5))
    shard.leader.brokers.sessions.receive(broker.connection, wish)
    await asyncio.sleep(10)

    live = shard.leader.brokers.sessions.live("broker-1", broker.session_id)
    assert not live.record.draining
    assert broker.error is None


@run_by(in_shard)
async def test_sessions_leases_and_lookups_go_on_while_a_replica_is_older(shard: Harness) -> None:
    hold_back(shard)
    first = await shard.start_broker("broker-1")
    await shard.start_broker("broker-2")
    (topic,) = await shard.create_topics("orders")
    (answer,) = await shard.lookup(topic)
    beat(shard, first, 1_000.0)
    await asyncio.sleep(3)

    (moved,) = await shard.move((topic, ""))

    assert (answer.epoch, moved.epoch) == (1, 2)
    assert moved.broker_id != answer.broker_id
    assert await shard.events("broker_load_reported") == []


def beat(shard: Harness, broker: FakeBroker, messages_in: float) -> None:
    assert broker.connection is not None
    load = LoadReport(topics=3, messages_in_per_second=messages_in)
    message = broker_pb.BrokerMessage(heartbeat=broker_pb.BrokerHeartbeat(load=load))
    shard.leader.brokers.sessions.receive(broker.connection, message)


@run_by(in_shard)
async def test_a_load_that_was_left_out_comes_with_the_next_one_that_may(shard: Harness) -> None:
    broker = await shard.start_broker("broker-1")
    hold_back(shard)
    beat(shard, broker, 1_000.0)
    await asyncio.sleep(1)
    assert await shard.events("broker_load_reported") == []
    assert shard.cluster.loads[broker.session_id].messages_in_per_second == 1_000.0
    let_go(shard)

    beat(shard, broker, 1_000.0)
    await asyncio.sleep(1)
    assert await shard.events("broker_load_reported") == [], "once a minute at most"
    await asyncio.sleep(LOAD_EVENT_MS_MIN / 1000)
    beat(shard, broker, 1_000.0)
    await asyncio.sleep(1)

    (event,) = await shard.events("broker_load_reported")
    assert event.broker_load_reported.load.messages_in_per_second == 1_000.0
