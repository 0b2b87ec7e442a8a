"""The controller of scalable topics: what it finds by itself, and how much it does at one time."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.kernel.errors import ProposalLost
from nextgen.kernel.limits.scalable import SCALABLE_TOPICS_AT_WORK_MAX
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.scalable import controller
from tests.support.scalable.shard import NAME, ScalableShard, endpoint_of, in_scalable_shard
from tests.support.scenarios import run_by
from tests.support.shards.harness import NAMESPACE

AT_WORK_MAX = 3


def hang(shard: ScalableShard) -> None:
    for broker_id in shard.harness.brokers:
        shard.segments.hanging.add(endpoint_of(broker_id))


async def begin(shard: ScalableShard, number: int) -> asyncio.Task[pb.CommandResult]:
    """Begin to split one topic of many."""
    name = f"topic://{NAMESPACE}/other-{number}"
    specs = [pb.TopicSpec(name=name)]
    await shard.harness.execute(create_topics=pb.CreateTopics(topics=specs))
    body = pb.ChangeLayout(name=name, kind="split", segments=[0])
    task = asyncio.create_task(shard.run(change_layout=body))
    await asyncio.sleep(0.05)
    return task


@pytest.mark.parametrize("topics", [AT_WORK_MAX, AT_WORK_MAX + 1])
@run_by(in_scalable_shard)
async def test_scalable_topics_at_work_max_go_on_at_one_time_and_one_more_waits(
    shard: ScalableShard, *, topics: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SCALABLE_TOPICS_AT_WORK_MAX > AT_WORK_MAX
    monkeypatch.setattr(controller, "SCALABLE_TOPICS_AT_WORK_MAX", AT_WORK_MAX)
    hang(shard)
    begun = [await begin(shard, number) for number in range(topics)]

    at_work = shard.harness.leader.scalable.topics_at_work
    shard.segments.hanging.clear()
    results = await asyncio.gather(*begun)
    await asyncio.sleep(0.1)

    assert at_work == AT_WORK_MAX
    assert not any(result.rejection_code for result in results)
    assert shard.harness.leader.scalable.topics_at_work == 0


@run_by(in_scalable_shard)
async def test_a_new_leader_finds_more_than_it_does_at_one_time(
    shard: ScalableShard, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(shard)
    begun = [await begin(shard, number) for number in range(AT_WORK_MAX + 2)]
    for task in begun:
        task.cancel()
    shard.stop_leader()
    monkeypatch.setattr(controller, "SCALABLE_TOPICS_AT_WORK_MAX", AT_WORK_MAX)
    monkeypatch.setattr(controller, "_PAGE", 2)
    await shard.start_leader()
    await asyncio.sleep(0.5)

    at_work = shard.harness.leader.scalable.topics_at_work
    shard.segments.hanging.clear()
    await asyncio.sleep(5)

    assert at_work == AT_WORK_MAX
    assert len(await shard.harness.events("layout_changed")) == AT_WORK_MAX + 2


@run_by(in_scalable_shard)
async def test_work_that_nobody_noted_is_found_in_the_view(
    shard: ScalableShard, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume = shard.harness.leader.scalable.resume
    monkeypatch.setattr(shard.harness.leader.scalable, "resume", lambda _: None)
    commands = shard.harness.leader.inventory._commands._scalable
    monkeypatch.setattr(commands, "_on_decided", None)
    planned = asyncio.create_task(shard.change("split", 0))
    await asyncio.sleep(1)
    assert shard.segments.calls == []

    monkeypatch.setattr(shard.harness.leader.scalable, "resume", resume)
    planned.cancel()
    await asyncio.sleep(controller._LOOK_SECONDS)

    assert shard.units == {"s0": "sealed", "s1": "active", "s2": "active"}


@run_by(in_scalable_shard)
async def test_a_command_whose_leader_is_gone_is_to_be_repeated(shard: ScalableShard) -> None:
    hang(shard)
    body = pb.ChangeLayout(name=NAME, kind="split", segments=[0])
    waiting = asyncio.create_task(shard.harness.execute(command_id=bytes(16), change_layout=body))
    await asyncio.sleep(0.1)

    shard.stop_leader()

    with pytest.raises(ProposalLost):
        await waiting
    shard.segments.hanging.clear()
    await shard.start_leader()
    result = await shard.harness.execute(command_id=bytes(16), change_layout=body)
    assert (result.rejection_code, result.operation_id) == ("", 1)
    assert shard.units == {"s0": "sealed", "s1": "active", "s2": "active"}


@run_by(in_scalable_shard)
async def test_a_refused_command_does_not_wait(shard: ScalableShard) -> None:
    hang(shard)

    result = await shard.change("split", 7)

    assert result.rejection_code == "NOT_FOUND"
