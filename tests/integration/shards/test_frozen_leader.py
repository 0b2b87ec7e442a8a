"""A leader that is frozen (SIGSTOP) and wakes deposes no successor and answers no stale read."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from nextgen.harness.perf.frozen_leader import QUESTIONS_OF_EACH_KIND, FrozenLeader
from tests.integration.shards.processes import Caller, running

FROZEN_S_MAX = 30.0
ROUNDS_MAX = 3


def terms(caller: Caller) -> dict[int, int]:
    return {shard_id: leader.term for shard_id, leader in caller.link.view.leaders.items()}


def transfers(directory: Path) -> int:
    """Return how often the cluster manager has asked for a transfer of leadership."""
    return (directory / "cluster-manager-1.log").read_text().count('"spreading leaders"')


async def led_by_others(caller: Caller, victim: str) -> None:
    def elsewhere(view: object) -> bool:
        return all(leader.node_id != victim for leader in caller.link.view.leaders.values())

    assert await caller.link.wait_until(elsewhere, int(FROZEN_S_MAX * 1000))


async def test_a_leader_that_was_frozen_answers_nothing_that_is_out_of_date(
    tmp_path: Path,
) -> None:
    """1. A leader freezes. 2. Others take over and commit a topic. 3. Questions about it are put
    to the frozen one: they wait in its buffers, before anything that its peers sent it. 4. It
    wakes."""
    async with running(tmp_path, shards=2) as (nodes, caller):
        (topic,) = await caller.create("before")
        shard_id = caller.shard_of(topic)
        names = (f"after-{number}" for number in range(1_000))
        fresh = next(
            n for n in names if caller.shard_of(f"persistent://acme/orders/{n}") == shard_id
        )
        victim = caller.link.view.leaders[shard_id].node_id
        frozen = FrozenLeader(caller.leader_endpoint(shard_id), shard_id)
        try:
            await frozen.connect(topic)
            nodes.processes[victim].send_signal(signal.SIGSTOP)
            began = time.monotonic()
            (created,) = await caller.create(fresh)
            took_s = time.monotonic() - began
            await frozen.ask(created)
            await asyncio.sleep(0.2)  # Until they have left this process.
            nodes.processes[victim].send_signal(signal.SIGCONT)

            verdicts = await frozen.verdicts()
        finally:
            nodes.processes[victim].send_signal(signal.SIGCONT)
            await frozen.close()

        print(f"next commit after {took_s:.2f} s, {verdicts}")
        assert verdicts["stale_answers"] == 0
        assert sum(verdicts.values()) == 2 * QUESTIONS_OF_EACH_KIND
        assert verdicts["refused"] > 0, "it was no leader any more"


@pytest.mark.slow
async def test_a_leader_that_was_frozen_deposes_nobody_when_it_wakes(tmp_path: Path) -> None:
    """A leader that stands still by itself meanwhile is deposed as well: then once more."""
    async with running(tmp_path, shards=2) as (nodes, caller):
        for _ in range(ROUNDS_MAX):
            victim = caller.link.view.leaders[1].node_id
            nodes.processes[victim].send_signal(signal.SIGSTOP)
            try:
                await led_by_others(caller, victim)
                before, spread = terms(caller), transfers(tmp_path)
            finally:
                nodes.processes[victim].send_signal(signal.SIGCONT)

            await caller.link.wait_until(lambda _, before=before: terms(caller) != before, 1_500)

            # Leaders are spread anew two seconds after they changed: that is no deposition.
            after, spread = terms(caller), transfers(tmp_path) - spread
            if sum(after.values()) - sum(before.values()) <= spread:
                return
            print(f"{before} became {after}")
            await caller.wait_leaders()
    raise AssertionError(f"somebody was deposed each of {ROUNDS_MAX} times")
