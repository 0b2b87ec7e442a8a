"""Change streams of real processes: each change arrives exactly once while leaders are killed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from tests.integration.shards.processes import NAMESPACE, READY_S_MAX, Caller, running
from tests.support.shards.watch_server import eventually
from tests.support.shards.watch_world import Recorder

PREFIX = f"persistent://{NAMESPACE}/"


@pytest.mark.slow
async def test_a_watch_gets_each_change_once_while_leaders_are_killed(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (nodes, caller):
        topics = await caller.create("t-first")
        seen: dict[tuple[int, bool], Recorder] = {}
        some: dict[int, Recorder] = {}
        watches: list[ShardWatch] = []
        for shard_id in caller.link.view.shard_ids:
            for at_leader in (True, False):
                name = f"test-{shard_id}-{at_leader}"
                watch = ShardWatch(shard_id, name, caller.link, at_leader=at_leader)
                watches.append(watch)
                seen[shard_id, at_leader] = Recorder()
                watch.add(seen[shard_id, at_leader], kinds=[KIND_TOPIC], prefix=PREFIX)
            some[shard_id] = Recorder()
            watch.add(some[shard_id], kinds=[KIND_TOPIC], prefix=f"{PREFIX}t-1-")
        tasks = [asyncio.create_task(watch.run()) for watch in watches]
        try:
            await eventually(lambda: all(r.snapshot_position for r in seen.values()))
            for round_number in range(2):
                leaders = caller.link.view.leaders.values()
                victim = min(leader.node_id for leader in leaders)
                topics += await caller.create(*(f"t-{round_number}-{n}" for n in range(20)))
                nodes.kill(victim)
                topics += await caller.create(*(f"t-{round_number}-after-{n}" for n in range(20)))
                nodes.start(victim)
                await nodes.wait_ready(victim)
            topics += await caller.create("t-last")
            ends = await _positions(caller, topics)
            await eventually(
                lambda: (
                    all(r.position >= ends[shard_id] for (shard_id, _), r in seen.items())
                    and all(r.position >= ends[shard_id] for shard_id, r in some.items())
                )
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        told: set[str] = set()
        for (shard_id, at_leader), recorder in seen.items():
            items = [item.name for item in recorder.items]
            names = [event.topic_created.name for event in recorder.events]
            expected = sorted(topic for topic in topics if caller.shard_of(topic) == shard_id)
            assert sorted(items + names) == expected, f"shard {shard_id} leader {at_leader}"
            assert recorder.positions == sorted(recorder.positions)
            assert (recorder.error, recorder.resets) == (None, 1)
            told.update(items, names)
        assert told == set(topics)
        for shard_id, recorder in some.items():
            names = [event.topic_created.name for event in recorder.events]
            expected = [topic for topic in topics if topic.startswith(f"{PREFIX}t-1-")]
            assert sorted(names) == sorted(t for t in expected if caller.shard_of(t) == shard_id)


async def _positions(caller: Caller, topics: list[str]) -> dict[int, int]:
    """Return where each shard's log ends that has all its topics.

    Whoever led when it was last heard of may be behind: then it is asked again.
    """
    positions = {}
    async with timeout(READY_S_MAX):
        for shard_id in caller.link.view.shard_ids:
            wanted = {topic for topic in topics if caller.shard_of(topic) == shard_id}
            while shard_id not in positions:
                events = await caller.events(caller.leader_endpoint(shard_id), shard_id)
                if wanted <= {event.topic_created.name for event in events}:
                    positions[shard_id] = events[-1].position
    return positions
