"""Deletions that were checked: only what owners ended is deleted, and names rest when forced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nextgen.kernel.limits.placement import (
    FORCED_DELETION_EVENTS_MAX,
    FORCED_DELETIONS_REMEMBERED_MAX,
)
from nextgen.kernel.limits.pulsar import FORCED_DELETION_PAUSE_MS
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.assignment import TopicAssigned, TopicUnassigned
from shards.domain.topic import TopicDeleted
from shards.inventory.forced_deletions import ForcedDeletions, forced_before
from tests.support.shards.world import ShardReplica, World, create_topics, names_in, namespace_at

PAUSE_S = FORCED_DELETION_PAUSE_MS / 1_000


class Scene:
    """A topic of two partitions, of which the first is assigned in epoch 4."""

    def __init__(self, world: World, shard: ShardReplica, name: str, topic_id: str) -> None:
        self.world, self.shard, self.name, self.topic_id = world, shard, name, topic_id

    def assigned(self, unit: str, epoch: int) -> TopicAssigned:
        name = f"{self.name}-partition-{unit[1:]}"
        return TopicAssigned(self.topic_id, unit, name, epoch, "b-1", "s-1", "x")

    async def delete(self, *ended: tuple[str, int], **fields: Any) -> str:
        """Delete it as a discovery node does; return the rejection code."""
        body = pb.DeleteTopic(
            name=self.name,
            is_checked=True,
            ended=[pb.EndedUnit(unit=unit, epoch=epoch) for unit, epoch in ended],
            **fields,
        )
        result = await self.world.run(self.shard, pb.Command(delete_topic=body))
        return result.rejection_code

    @property
    def is_there(self) -> bool:
        return self.shard.state.reads.load_topic(self.name) is not None


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    world = World()
    for shard in world.shards.values():
        await shard.state.proposer.confirm()
    await world.create_tenant("acme")
    namespace = namespace_at(world, 1, "acme")
    await world.create_namespace(namespace)
    name = next(names_in(world, 2, namespace))
    created = await world.create_topic(name, partitions=2)
    scene = Scene(world, world.shards[2], name, created.topics[0].topic_id)
    await scene.shard.state.proposer.propose([scene.assigned("p0", 4)])
    yield scene
    world.close()


async def test_a_topic_that_was_never_served_is_deleted_at_once(scene: Scene) -> None:
    never = await scene.world.create_topic(f"{scene.name}-never")
    assert not never.topics[0].rejection_code
    body = pb.DeleteTopic(name=f"{scene.name}-never", is_checked=True)

    shard = scene.world.home_of_topic(f"{scene.name}-never")
    result = await scene.world.run(shard, pb.Command(delete_topic=body))

    assert result.rejection_code == ""


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("ended", [(), (("p0", 3),), (("p0", 5),), (("p1", 4),)])
async def test_a_unit_whose_present_epoch_was_not_ended_keeps_its_topic(
    scene: Scene, ended: tuple[tuple[str, int], ...], force: bool
) -> None:
    assert await scene.delete(*ended, force=force) == "STALE_EPOCH"

    assert scene.is_there
    assert scene.shard.unassigned == []


@pytest.mark.parametrize("force", [False, True])
async def test_a_topic_whose_epochs_ended_is_deleted_and_its_owners_are_notified(
    scene: Scene, force: bool
) -> None:
    assert await scene.delete(("p0", 4), force=force, topic_id=scene.topic_id) == ""

    assert not scene.is_there
    assert [(each.unit, each.epoch) for each in scene.shard.unassigned] == [("p0", 4)]


async def test_a_unit_that_was_assigned_after_the_check_keeps_its_topic(scene: Scene) -> None:
    """1. The owner ends epoch 4. 2. Its client has the unit assigned again. 3. The deletion."""
    await scene.shard.state.proposer.propose([scene.assigned("p0", 5)])

    assert await scene.delete(("p0", 4), force=True) == "STALE_EPOCH"
    assert await scene.delete(("p0", 5), force=True) == ""


async def test_a_deletion_that_was_told_to_ask_again_may_come_again_under_its_id(
    scene: Scene,
) -> None:
    async def delete(*ended: pb.EndedUnit) -> pb.CommandResult:
        body = pb.DeleteTopic(name=scene.name, is_checked=True, ended=ended)
        command = pb.Command(command_id=b"command-00000009", delete_topic=body)
        return await scene.world.run(scene.shard, command)

    stale = await delete()
    deleted = await delete(pb.EndedUnit(unit="p0", epoch=4))
    repeated = await delete()

    assert stale.rejection_code == "STALE_EPOCH"
    assert (deleted.rejection_code, deleted.id) == ("", scene.topic_id)
    assert (repeated.rejection_code, repeated.id) == ("", scene.topic_id)


async def test_a_partition_that_was_first_assigned_after_the_check_keeps_its_topic(
    scene: Scene,
) -> None:
    await scene.shard.state.proposer.propose([scene.assigned("p1", 1)])

    assert await scene.delete(("p0", 4)) == "STALE_EPOCH"


async def test_only_force_deletes_what_no_owner_was_asked_about(scene: Scene) -> None:
    """A unit without an owner may have subscriptions."""
    name = f"{scene.name}-partition-0"
    ended = TopicUnassigned(scene.topic_id, "p0", name, 4, "unloaded")
    await scene.shard.state.proposer.propose([ended])

    assert await scene.delete() == "STALE_EPOCH"
    assert await scene.delete(("p0", 4)) == "STALE_EPOCH"
    assert await scene.delete(force=True) == ""


async def test_a_check_of_another_topic_of_the_name_does_not_count(scene: Scene) -> None:
    assert await scene.delete(("p0", 4), topic_id="earlier") == "STALE_EPOCH"


@pytest.mark.parametrize(
    ("partitions", "form", "code"),
    [
        (0, pb.TOPIC_FORM_WITHOUT_PARTITIONS, ""),
        (0, pb.TOPIC_FORM_WITH_PARTITIONS, "NOT_PARTITIONED"),
        (2, pb.TOPIC_FORM_WITH_PARTITIONS, ""),
        (2, pb.TOPIC_FORM_WITHOUT_PARTITIONS, "PARTITIONED"),
        (2, pb.TOPIC_FORM_ANY, ""),
    ],
)
@pytest.mark.parametrize("force", [False, True])
async def test_a_topic_of_another_form_than_the_command_is_for_is_kept(
    scene: Scene, partitions: int, form: pb.TopicForm, code: str, force: bool
) -> None:
    name = f"{scene.name}-form"
    await scene.world.create_topic(name, partitions=partitions)
    shard = scene.world.home_of_topic(name)
    body = pb.DeleteTopic(name=name, is_checked=True, form=form, force=force)

    result = await scene.world.run(shard, pb.Command(delete_topic=body))

    assert result.rejection_code == code
    assert (shard.state.reads.load_topic(name) is None) == (code == "")


async def test_an_absent_topic_has_no_form(scene: Scene) -> None:
    name = f"{scene.name}-none"
    body = pb.DeleteTopic(name=name, form=pb.TOPIC_FORM_WITH_PARTITIONS)

    result = await scene.world.run(scene.world.home_of_topic(name), pb.Command(delete_topic=body))

    assert result.rejection_code == "NOT_FOUND"


async def test_the_units_of_a_topic_are_those_that_were_ever_assigned(scene: Scene) -> None:
    found = await scene.shard.service.units_of_topic(scene.name)
    absent = await scene.shard.service.units_of_topic("persistent://acme/none/at-all")

    assert found.topic_id == scene.topic_id
    assert [(each.unit, each.epoch, each.broker_id) for each in found.units] == [("p0", 4, "b-1")]
    assert (absent.topic_id, list(absent.units)) == ("", [])


# Names that rest ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("force", "code"), [(True, "JUST_DELETED"), (False, "")])
async def test_a_name_is_not_created_on_demand_at_once_if_its_deletion_was_forced(
    scene: Scene, force: bool, code: str
) -> None:
    await scene.delete(("p0", 4), force=force)
    on_demand = create_topics([scene.name])
    on_demand.create_topics.on_demand = True

    result = await scene.world.run(scene.shard, on_demand)

    assert result.topics[0].rejection_code == code


async def test_a_deletion_names_units_without_an_owner_too(scene: Scene) -> None:
    """Their messages are removed by a broker that never had them."""
    name = f"{scene.name}-partition-0"
    ended = TopicUnassigned(scene.topic_id, "p0", name, 4, "unloaded")
    await scene.shard.state.proposer.propose([ended, scene.assigned("p1", 2)])

    assert await scene.delete(("p1", 2), force=True) == ""

    units = [(each.unit, each.epoch, each.broker_id) for each in scene.shard.unassigned]
    assert units == [("p1", 2, "b-1"), ("p0", 4, "")]


async def test_a_command_that_names_it_creates_it_at_once(scene: Scene) -> None:
    await scene.delete(("p0", 4), force=True)

    created = await scene.world.create_topic(scene.name)

    assert created.topics[0].rejection_code == ""


def another_event(epoch: int) -> TopicAssigned:
    return TopicAssigned("another", "", "persistent://acme/a/b", epoch, "b-1", "s-1", "x")


async def on_demand(scene: Scene, name: str) -> str:
    """Create a topic on demand; return the rejection code."""
    command = create_topics([name])
    command.create_topics.on_demand = True
    return (await scene.world.run(scene.shard, command)).topics[0].rejection_code


@pytest.mark.parametrize(("force", "code"), [(True, "JUST_DELETED"), (False, "")])
async def test_a_name_rests_under_the_next_leader_too(scene: Scene, force: bool, code: str) -> None:
    await scene.delete(("p0", 4), force=force)

    scene.shard.next_term()

    assert await on_demand(scene, scene.name) == code


async def test_a_name_rests_for_one_pause_of_the_next_term(scene: Scene) -> None:
    await scene.delete(("p0", 4), force=True)
    scene.shard.next_term()
    assert await on_demand(scene, scene.name) == "JUST_DELETED"

    scene.shard.clock.skip(FORCED_DELETION_PAUSE_MS)

    assert await on_demand(scene, scene.name) == ""


async def test_a_deletion_that_its_leader_outlived_by_the_pause_rests_no_more(
    scene: Scene,
) -> None:
    await scene.delete(("p0", 4), force=True)
    scene.shard.clock.skip(FORCED_DELETION_PAUSE_MS)
    await scene.shard.state.proposer.propose([another_event(1)])
    scene.shard.next_term()

    assert await on_demand(scene, scene.name) == ""


async def test_the_clock_of_the_next_leader_may_be_ahead(scene: Scene) -> None:
    await scene.delete(("p0", 4), force=True)
    scene.shard.clock.skip(3_600_000)
    scene.shard.next_term()

    assert await on_demand(scene, scene.name) == "JUST_DELETED"


async def test_the_log_is_not_read_once_the_pause_of_the_term_is_over(scene: Scene) -> None:
    await scene.delete(("p0", 4), force=True)
    scene.shard.next_term()
    scene.shard.clock.skip(FORCED_DELETION_PAUSE_MS)
    scene.shard.log.read = None  # type: ignore[method-assign, assignment]

    assert await on_demand(scene, scene.name) == ""


@pytest.mark.parametrize(("later", "found"), [(-1, True), (0, False)])
async def test_forced_deletion_events_max_are_read_and_one_further_back_is_not(
    scene: Scene, later: int, found: bool
) -> None:
    deleted = TopicDeleted(scene.name, scene.topic_id, 2, forced=True)
    await scene.shard.state.proposer.propose([deleted])
    behind = [another_event(epoch) for epoch in range(1, FORCED_DELETION_EVENTS_MAX + later + 1)]
    await scene.shard.state.proposer.propose(behind)
    log = scene.shard.log
    scene.shard.next_term()

    forced = forced_before(log, log.status.term)

    assert forced == ([scene.name] if found else [])


def new_leader(monotonic: Callable[[], float]) -> Any:
    """Return as much of a leader's state as a log without events needs."""
    log = SimpleNamespace(status=SimpleNamespace(first_position=1, commit_position=0))
    return SimpleNamespace(monotonic=monotonic, log=log, term=SimpleNamespace(number=1))


def test_a_name_rests_for_its_pause_and_no_longer() -> None:
    now = 10.0
    forced = ForcedDeletions(new_leader(lambda: now))
    forced.note("a")

    now += PAUSE_S - 0.001
    assert forced.check("a") is not None
    assert forced.check("b") is None
    now += 0.001
    assert forced.check("a") is None


def test_forced_deletions_remembered_max_are_kept_and_one_more_forgets_the_oldest() -> None:
    forced = ForcedDeletions(new_leader(lambda: 10.0))
    names = [f"n{number}" for number in range(FORCED_DELETIONS_REMEMBERED_MAX)]
    for name in names:
        forced.note(name)
    assert all(forced.check(name) for name in names)

    forced.note("one more")

    assert forced.check(names[0]) is None
    assert forced.check(names[1]) is not None
    assert forced.check("one more") is not None
