"""A command id has one outcome. What comes when that is not known any more is not carried out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nextgen.kernel.errors import OutcomeForgotten
from nextgen.replication.view.store import ViewStore
from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from shards.projections import outcomes as outcomes_module
from shards.projections.fold import fold
from shards.projections.reading import read_outcomes
from shards.projections.rows import query_of
from shards.projections.tables import METADATA
from shards.state import outcome_retention as retention_module
from shards.state.outcome_retention import OUTCOME_ORDERS_LEVEL
from tests.support.scenarios import run_by
from tests.support.shards.harness import Harness, in_shard

WINDOW = 20
WINDOW_MS = 5_000
ID_1 = b"command-00000001"
ID_2 = b"command-00000002"


@pytest.fixture(autouse=True)
def small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (outcomes_module, retention_module):
        monkeypatch.setattr(module, "OUTCOME_WINDOW_POSITIONS", WINDOW)
    monkeypatch.setattr(retention_module, "OUTCOME_WINDOW_MS", WINDOW_MS)


def set_colour(topic: str, colour: str, command_id: bytes) -> pb.Command:
    body = pb.SetTopicProperties(name=topic, properties={"colour": colour})
    return pb.Command(command_id=command_id, set_topic_properties=body)


def missing(command_id: bytes) -> pb.Command:
    body = pb.DeleteTopic(name="persistent://acme/orders/missing")
    return pb.Command(command_id=command_id, delete_topic=body)


async def execute(shard: Harness, command: pb.Command, issued_position: int = 0) -> str:
    """Carry out one command; return its rejection code."""
    request = pb.ExecuteRequest(commands=[command], issued_position=issued_position)
    response = await shard.leader.inventory.execute(request)
    return str(response.results[0].rejection_code)


async def colour_of(shard: Harness, topic: str) -> str:
    names = [pb.ObjectName(kind=KIND_TOPIC, name=topic)]
    response = await shard.replica.reader.get(pb.GetRequest(names=names))
    return str(response.items[0].topic.properties["colour"])


async def go_on(shard: Harness, topic: str, events: int, *, seconds: float = 8.0) -> None:
    """Have others change the topic, so often and for so long."""
    for number in range(events):
        await execute(shard, set_colour(topic, f"red {number}", b"filler-%09d" % number))
        await asyncio.sleep(seconds / events)
    await shard.log.wait_applied(shard.log.status.commit_index)


@run_by(in_shard)
async def test_a_repetition_that_comes_too_late_is_not_carried_out_again(shard: Harness) -> None:
    """1. A change is made, its answer is lost. 2. Others change the same. 3. The first comes again
    when its outcome is forgotten: carried out, it would undo what came between."""
    (topic,) = await shard.create_topics("orders")
    issued = shard.log.status.commit_position
    await execute(shard, set_colour(topic, "blue", ID_1), issued)
    await go_on(shard, topic, 2 * WINDOW)
    before = await colour_of(shard, topic)

    with pytest.raises(OutcomeForgotten, match=f"position {issued} of shard 1"):
        await execute(shard, set_colour(topic, "blue", ID_1), issued)

    assert await colour_of(shard, topic) == before


@pytest.mark.parametrize(("events", "seconds"), [(3 * WINDOW, WINDOW_MS / 1_000 - 2), (2, 100.0)])
@run_by(in_shard)
async def test_a_repetition_gets_its_outcome_while_it_is_young_or_few_events_followed(
    shard: Harness, *, events: int, seconds: float
) -> None:
    """The window is by time as well as by count: only what is beyond both is forgotten."""
    (topic,) = await shard.create_topics("orders")
    issued = shard.log.status.commit_position
    await execute(shard, set_colour(topic, "blue", ID_1), issued)
    await go_on(shard, topic, events, seconds=seconds)
    before = shard.log.status.commit_position

    assert await execute(shard, set_colour(topic, "blue", ID_1), issued) == ""

    assert shard.log.status.commit_position == before
    assert await colour_of(shard, topic) == f"red {events - 1}"


@run_by(in_shard)
async def test_a_command_that_was_unknown_when_read_ahead_is_carried_out_once(
    shard: Harness,
) -> None:
    (topic,) = await shard.create_topics("orders")
    first = pb.ExecuteRequest(commands=[set_colour(topic, "blue", ID_1)])
    shard.leader.inventory.read_ahead([first])
    await execute(shard, first.commands[0])
    await go_on(shard, topic, WINDOW)
    assert shard.leader.state.outcomes.pending(ID_1) is None

    await execute(shard, first.commands[0])

    assert await colour_of(shard, topic) == f"red {WINDOW - 1}"


@run_by(in_shard)
async def test_a_known_outcome_that_was_read_ahead_is_given(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    assert await execute(shard, missing(ID_1)) == "NOT_FOUND"
    await go_on(shard, topic, WINDOW)
    before = shard.log.status.commit_position

    shard.leader.inventory.read_ahead([pb.ExecuteRequest(commands=[missing(ID_1)])])

    assert await execute(shard, missing(ID_1)) == "NOT_FOUND"
    assert shard.log.status.commit_position == before


@run_by(in_shard)
async def test_a_member_of_an_earlier_release_gets_no_orders(shard: Harness) -> None:
    """It would pass over them, and its view would differ: outcomes go by positions alone."""
    (member,) = shard.log.status.members
    shard.log.event_levels[member] = OUTCOME_ORDERS_LEVEL - 1
    (topic,) = await shard.create_topics("orders")
    issued = shard.log.status.commit_position
    await execute(shard, set_colour(topic, "blue", ID_1), issued)

    await go_on(shard, topic, 2 * WINDOW, seconds=0.1)

    with pytest.raises(OutcomeForgotten):
        await execute(shard, set_colour(topic, "blue", ID_1), issued)


@run_by(in_shard)
async def test_the_position_up_to_which_it_is_refused_is_exact(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    await go_on(shard, topic, WINDOW + 5)
    forgotten = shard.leader.state.outcomes.forgotten_position()
    assert 0 < forgotten <= shard.log.status.commit_position - WINDOW

    with pytest.raises(OutcomeForgotten):
        await execute(shard, set_colour(topic, "blue", ID_1), forgotten)
    assert await execute(shard, set_colour(topic, "blue", ID_1), forgotten + 1) == ""


@run_by(in_shard)
async def test_nothing_is_refused_while_nothing_was_forgotten(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")

    assert await execute(shard, set_colour(topic, "blue", ID_1), issued_position=1) == ""


@run_by(in_shard)
async def test_a_late_repetition_whose_outcome_is_known_gets_it(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    await go_on(shard, topic, WINDOW + 5)
    assert await execute(shard, missing(ID_2)) == "NOT_FOUND"

    assert await execute(shard, missing(ID_2), issued_position=1) == "NOT_FOUND"


def test_a_flood_of_rejections_makes_no_command_be_carried_out_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejections move no position: outcomes are forgotten by their number."""
    monkeypatch.setattr(outcomes_module, "OUTCOMES_MAX", 5)

    async def scenario(shard: Harness) -> None:
        (topic,) = await shard.create_topics("orders")
        issued = shard.log.status.commit_position
        await execute(shard, set_colour(topic, "blue", ID_1), issued)
        await execute(shard, set_colour(topic, "red", ID_2), issued)
        for number in range(10):
            await execute(shard, missing(b"flood-%010d" % number))
        await shard.log.wait_applied(shard.log.status.commit_index)

        with pytest.raises(OutcomeForgotten):
            await execute(shard, set_colour(topic, "blue", ID_1), issued)

        assert await colour_of(shard, topic) == "red"

    in_shard(tmp_path, scenario)


@run_by(in_shard)
async def test_a_command_without_an_id_is_nobodys_repetition(shard: Harness) -> None:
    (topic,) = await shard.create_topics("orders")
    await go_on(shard, topic, WINDOW + 5)

    assert await execute(shard, set_colour(topic, "blue", b""), issued_position=1) == ""


@run_by(in_shard)
async def test_outcomes_travel_with_a_snapshot_rejections_included(
    shard: Harness, *, tmp_path: Path
) -> None:
    (topic,) = await shard.create_topics("orders")
    await execute(shard, set_colour(topic, "blue", ID_1))
    await execute(shard, missing(ID_2))
    await shard.log.wait_applied(shard.log.status.commit_index)
    first = read_outcomes(query_of(shard.view.reader), [ID_1, ID_2])

    shard.view.write_snapshot(tmp_path / "snapshot")
    other = ViewStore(tmp_path / "other", METADATA, fold)
    other.install_snapshot(tmp_path / "snapshot")

    assert read_outcomes(query_of(other.reader), [ID_1, ID_2]) == first
    assert set(first) == {ID_1, ID_2}
    other.close()
