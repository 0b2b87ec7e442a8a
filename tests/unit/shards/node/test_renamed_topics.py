"""A whole shard with a broker, while its topics are renamed."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import Unavailable
from nextgen.kernel.limits.cluster import ASSIGNMENT_TTL_MS
from nextgen.kernel.limits.placement import EFFECTIVE_MANAGER_MS
from nextgen.kernel.routing.hashing import slot_of
from nextgen.kernel.routing.ids import slot_of_id
from nextgen.kernel.routing.shadows import SHADOW_SOURCE_PROPERTY
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC, UnitAssignment
from shards.domain.slots.events import SlotRanges
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE, Harness, in_shard

SETTLED_S = 3.0
"""Longer than one time-to-live of the assignments: a new leader waits for it once."""

TTL_S = ASSIGNMENT_TTL_MS / 1000
MANAGER_S = EFFECTIVE_MANAGER_MS / 1000
RENAMED = f"persistent://{NAMESPACE}/renamed"
AGAIN = f"persistent://{NAMESPACE}/renamed-again"


async def rename(shard: Harness, name: str, new_name: str) -> pb.CommandResult:
    command = pb.Command(rename_topic=pb.RenameTopic(name=name, new_name=new_name))
    response = await shard.ask(execute=pb.ExecuteRequest(commands=[command]))
    return response.execute.results[0]


async def served_topic(shard: Harness) -> str:
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders")
    await shard.lookup(topic)
    await asyncio.sleep(SETTLED_S)
    return topic


@run_by(in_shard)
async def test_a_rename_takes_a_unit_from_its_broker_and_both_names_lead_to_it(shard: Harness):
    topic = await served_topic(shard)
    (before,) = await shard.lookup(topic)

    result = await rename(shard, topic, RENAMED)
    await asyncio.sleep(SETTLED_S)

    assert (result.rejection_code, result.id) == ("", before.topic_id)
    assert shard.brokers["broker-1"].released == [(topic, before.epoch, "")]
    (by_new,), (by_old,) = await shard.lookup(RENAMED), await shard.lookup(topic)
    assert (by_new.topic, by_new.is_former) == (RENAMED, False)
    assert (by_old.topic, by_old.is_former) == (topic, True)
    for answer in (by_new, by_old):
        assert (answer.topic_id, answer.epoch) == (before.topic_id, before.epoch + 1)
    assert shard.brokers["broker-1"].assigned[-1] == (RENAMED, before.epoch + 1)


@run_by(in_shard)
async def test_both_names_in_one_request_are_one_unit(shard: Harness):
    topic = await served_topic(shard)
    await rename(shard, topic, RENAMED)

    answers = await shard.lookup(topic, RENAMED, topic)

    assert [(each.topic, each.is_former) for each in answers] == [
        (topic, True),
        (RENAMED, False),
        (topic, True),
    ]
    assert len({(each.epoch, each.session_id) for each in answers}) == 1


@run_by(in_shard)
async def test_partitions_are_found_by_a_former_name(shard: Harness):
    await shard.start_broker("broker-1")
    (topic,) = await shard.create_topics("orders", partitions=2)
    await asyncio.sleep(SETTLED_S)
    await rename(shard, topic, RENAMED)

    whole, second, third = await shard.lookup(topic, f"{topic}-partition-1", f"{topic}-partition-2")

    assert (whole.rejection_code, whole.partitions, whole.topic) == ("PARTITIONED", 2, topic)
    assert (second.rejection_code, second.topic) == ("", f"{topic}-partition-1")
    assert third.rejection_code == "NOT_FOUND"
    assert shard.brokers["broker-1"].assigned == [(f"{RENAMED}-partition-1", 1)]


@run_by(in_shard)
async def test_operations_by_a_former_name_are_on_the_topic(shard: Harness):
    topic = await served_topic(shard)
    await shard.start_broker("broker-2")
    await rename(shard, topic, RENAMED)
    (before,) = await shard.lookup(RENAMED)
    await asyncio.sleep(SETTLED_S)

    units = (await shard.ask(topic_units=pb.TopicUnitsRequest(name=topic))).topic_units
    assert [(each.name, each.epoch) for each in units.units] == [(RENAMED, before.epoch)]
    (moved,) = await shard.move((topic, ""))
    assert (moved.topic, moved.topic_id, moved.epoch) == (topic, before.topic_id, before.epoch + 1)
    await asyncio.sleep(SETTLED_S)
    unit = UnitAssignment(name=topic)
    request = pb.UnassignRequest(units=[unit], reason="unloaded")
    (outcome,) = (await shard.ask(unassign=request)).unassign.outcomes
    assert (outcome.name, outcome.unassigned) == (topic, True)
    order = pb.SetTopicProperties(name=topic, properties={"a": "b"})
    command = pb.Command(set_topic_properties=order)
    await shard.ask(execute=pb.ExecuteRequest(commands=[command]))
    wanted = pb.GetRequest(names=[pb.ObjectName(kind=KIND_TOPIC, name=topic)])
    (item,) = (await shard.ask(get=wanted)).get.items
    assert (item.name, item.topic.name, dict(item.topic.properties)) == (topic, RENAMED, {"a": "b"})


@run_by(in_shard)
async def test_a_topic_is_not_renamed_while_its_unit_has_to_be_released(shard: Harness):
    topic = await served_topic(shard)
    shard.others.release_error = Unavailable("the manager cannot be reached")
    await rename(shard, topic, RENAMED)
    await asyncio.sleep(SETTLED_S)

    with pytest.raises(Unavailable):
        await rename(shard, RENAMED, AGAIN)

    shard.others.release_error = None
    await asyncio.sleep(30 * SETTLED_S)
    assert (await rename(shard, RENAMED, AGAIN)).rejection_code == ""


@run_by(in_shard)
async def test_a_lookup_under_way_never_says_that_a_renamed_topic_is_absent(shard: Harness):
    """It waits for capacity under the old name; when it is planned again that is a former one."""
    (topic,) = await shard.create_topics("orders")
    await asyncio.sleep(SETTLED_S)
    waiting = asyncio.create_task(shard.lookup(topic))
    await asyncio.sleep(0.01)

    await rename(shard, topic, RENAMED)
    await shard.start_broker("broker-1")
    (answer,) = await waiting

    assert (answer.rejection_code, answer.retryable) == ("NO_BROKER", True)
    assert "renamed" in answer.message


@run_by(in_shard)
async def test_the_next_leader_releases_the_unit_of_a_renamed_topic(shard: Harness):
    topic = await served_topic(shard)
    (before,) = await shard.lookup(topic)
    shard.others.release_error = Unavailable("the manager cannot be reached")
    await rename(shard, topic, RENAMED)
    await asyncio.sleep(0.1)
    shard.others.release_error = None

    shard.next_term()
    await shard.brokers["broker-1"].connect()
    await asyncio.sleep(5 * SETTLED_S)

    (after,) = await shard.lookup(topic)
    assert (after.topic_id, after.is_former) == (before.topic_id, True)
    assert after.epoch > before.epoch


async def renamed_topic(shard: Harness) -> tuple[SlotRanges, SlotRanges]:
    """Rename a topic that broker-1 serves, beside broker-2; return the slot in its id, and that of
    its new name."""
    topic = await served_topic(shard)
    await shard.start_broker("broker-2")
    await rename(shard, topic, RENAMED)
    (served,) = await shard.lookup(RENAMED)
    await asyncio.sleep(SETTLED_S)
    home, named = slot_of_id(served.topic_id), slot_of(f"{NAMESPACE}/renamed")
    assert home != named
    return ((home, home),), ((named, named),)


@run_by(in_shard)
async def test_a_unit_of_a_renamed_topic_that_moves_keeps_its_home_slot_here(shard: Harness):
    home, named = await renamed_topic(shard)
    for broker in shard.brokers.values():
        broker.hangs_at = "prepare"
    move = asyncio.create_task(shard.move((RENAMED, "")))
    await asyncio.sleep(0.01)

    is_busy = [shard.leader._slots_busy(each) for each in (home, named)]
    for broker in shard.brokers.values():
        broker.wake()
    (moved,) = await move

    assert (is_busy, moved.rejection_code) == ([True, False], "")


@run_by(in_shard)
async def test_a_unit_of_a_renamed_topic_that_is_to_be_released_keeps_its_home_slot_here(
    shard: Harness,
):
    home, named = await renamed_topic(shard)
    shard.others.release_error = Unavailable("the manager cannot be reached")
    unassign = pb.UnassignRequest(units=[UnitAssignment(name=RENAMED)], reason="unloaded")
    await shard.ask(unassign=unassign)

    assert [shard.leader._slots_busy(each) for each in (home, named)] == [True, False]


@run_by(in_shard)
async def test_no_move_of_a_renamed_topic_begins_while_its_home_slot_is_about_to_go(shard: Harness):
    home, named = await renamed_topic(shard)

    shard.leader._slots_busy(home)
    (held,) = await shard.move((RENAMED, ""))
    shard.leader._slots_busy(named)
    (moved,) = await shard.move((RENAMED, ""))

    assert (held.rejection_code, held.retryable) == ("NO_BROKER", True)
    assert "another shard" in held.message
    assert moved.rejection_code == ""


@run_by(in_shard)
async def test_a_write_to_a_renamed_topic_waits_for_subscribers_of_its_home_slots_last_shard(
    shard: Harness,
):
    home, named = await renamed_topic(shard)
    await asyncio.sleep(2 * MANAGER_S)  # Until nobody is expected to watch the topic.
    waited: list[float] = []
    for number, came in enumerate((named, home)):
        shard.leader.effective.slots_came(came)
        body = pb.SetTopicProperties(name=RENAMED, properties={"n": str(number)})
        command = pb.Command(set_topic_properties=body)
        began = shard.clock.monotonic()
        await shard.ask(
            execute=pb.ExecuteRequest(commands=[command], consistency=pb.CONSISTENCY_EFFECTIVE)
        )
        waited.append(shard.clock.monotonic() - began)

    assert waited[0] < 1 < MANAGER_S <= waited[1]


@run_by(in_shard)
async def test_a_move_of_a_renamed_topics_unit_waits_for_leases_at_its_home_slots_last_shard(
    shard: Harness,
):
    home, named = await renamed_topic(shard)
    waited: list[float] = []
    for came in (named, home):
        shard.leader.effective.slots_came(came)
        began = shard.clock.monotonic()
        (moved,) = await shard.move((RENAMED, ""))
        waited.append(shard.clock.monotonic() - began)
        assert moved.rejection_code == ""

    assert waited[0] < 1 < TTL_S <= waited[1]


async def create_shadow(shard: Harness, source: str) -> str:
    """Return the code of its refusal, "" if it was created."""
    properties = {SHADOW_SOURCE_PROPERTY: source}
    spec = pb.TopicSpec(name=f"persistent://{NAMESPACE}/shadow", properties=properties)
    command = pb.Command(create_topics=pb.CreateTopics(topics=[spec]))
    response = await shard.ask(execute=pb.ExecuteRequest(commands=[command]))
    return response.execute.results[0].topics[0].rejection_code


@run_by(in_shard)
async def test_a_shadow_names_its_source_as_it_is_called_now(shard: Harness):
    """It follows the source by name, and a former name leads to the source for a time only."""
    (topic,) = await shard.create_topics("orders")
    await asyncio.sleep(SETTLED_S)
    await rename(shard, topic, RENAMED)

    assert await create_shadow(shard, topic) == "NOT_ALLOWED"
    assert (await rename(shard, RENAMED, AGAIN)).rejection_code == "", "it is no source yet"
    assert await create_shadow(shard, AGAIN) == ""
    assert (await rename(shard, AGAIN, f"{AGAIN}-more")).rejection_code == "NOT_ALLOWED"
