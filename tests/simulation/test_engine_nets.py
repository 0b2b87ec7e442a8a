"""What the engine's simulation injects and judges, checked on its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from nextgen.replication.journal.format import decode_segment_header
from nextgen.replication.ports import Record
from nextgen.tasks.timeouts import timeout
from tests.simulation.engine.liveness import Liveness
from tests.simulation.engine.outage import DOWN_S, LED_S, LOOK_S, STAY_DOWN_S, Outage
from tests.simulation.engine.simulation import EngineSimulation
from tests.support.simulated.node import DATA, GROUP, SimNode
from tests.support.simulated.virtual_time import run_virtual

Scenario = Callable[[EngineSimulation], Coroutine[Any, Any, None]]


def simulated(scenario: Scenario) -> EngineSimulation:
    """Run ``scenario`` on a group of three, judged for liveness; return what was observed."""
    worlds: list[EngineSimulation] = []

    async def main() -> None:
        world = EngineSimulation(seed=1, size=3)
        worlds.append(world)
        await world.start()
        await world.leader()
        await asyncio.sleep(1)
        world.background(world.liveness.watch())
        await scenario(world)
        world.over = True

    run_virtual(main)
    return worlds[0]


def followers_of(world: EngineSimulation) -> list[SimNode]:
    return [node for node in world.nodes if node is not world.leading()]


def kill_leader(world: EngineSimulation) -> SimNode:
    leader = world.leading()
    assert leader is not None
    leader.kill()
    return leader


def stop_elections(node: SimNode) -> None:
    assert node.log is not None
    node.log.engine.election._may_campaign = lambda: False  # type: ignore[method-assign]


def test_a_healthy_majority_without_a_leader_fails_the_run() -> None:
    async def scenario(world: EngineSimulation) -> None:
        followers = followers_of(world)
        for node in followers:
            stop_elections(node)
        kill_leader(world)
        await asyncio.sleep(world.liveness.bound_s + 3)

    world = simulated(scenario)

    assert world.failure is not None
    assert "are a healthy majority and have had no leader" in world.failure


def test_a_majority_with_a_fault_may_stay_without_a_leader() -> None:
    """Each of these faults alone excuses a group of two: frozen, cut off, hanging, full."""

    def fault_excuses(inject: Callable[[EngineSimulation, SimNode], object]) -> bool:
        async def scenario(world: EngineSimulation) -> None:
            followers = followers_of(world)
            for node in followers:
                stop_elections(node)
            inject(world, followers[0])
            kill_leader(world)
            await asyncio.sleep(3 * world.liveness.bound_s)

        return simulated(scenario).failure is None

    def cut_one_way(world: EngineSimulation, node: SimNode) -> None:
        world.network.cut_one_way |= {(node.node_id, other.node_id) for other in world.nodes}

    assert fault_excuses(lambda world, node: world.freeze(node, 60))
    assert fault_excuses(cut_one_way)
    assert fault_excuses(lambda _world, node: node.hang_disk(60))
    assert fault_excuses(lambda _world, node: node.disk.fill_up())
    assert not fault_excuses(lambda _world, _node: None)


def test_a_fault_outside_the_majority_excuses_nothing() -> None:
    async def scenario(world: EngineSimulation) -> None:
        followers = followers_of(world)
        for node in followers:
            stop_elections(node)
        dead = kill_leader(world)
        for _ in range(int(world.liveness.bound_s) + 3):
            await asyncio.sleep(1)
            world.liveness.disturbed([dead])

    assert simulated(scenario).failure is not None


def test_a_disk_that_hangs_ends_nothing_until_the_power_is_cut() -> None:
    async def scenario(world: EngineSimulation) -> None:
        victim = followers_of(world)[0]
        assert victim.log is not None
        journal = victim.log.engine.journal
        before = journal.durable_index
        victim.hang_disk(120)
        assert await world.write_once()
        await asyncio.sleep(60)
        assert journal.durable_index == before
        assert not victim.is_disk_quick

        victim.crash()
        await victim.start(may_be_lost=True)

        assert victim.is_disk_quick

    assert simulated(scenario).failure is None


def test_rot_takes_the_end_of_the_journal_and_spares_its_header() -> None:
    async def scenario(world: EngineSimulation) -> None:
        victim = followers_of(world)[0]
        assert await world.write_once()
        directory = DATA / f"group-{GROUP}" / "journal"
        path = directory / "000000000001.journal"
        victim.kill()
        before = victim.disk.read(path)

        victim.rot_tail(100_000)

        after = victim.disk.read(path)
        header = decode_segment_header(after)
        assert header is not None
        end = len(before.rstrip(b"\0"))
        assert after[: header.bytes_long] == before[: header.bytes_long]
        assert after[header.bytes_long : end] == b"\xb6" * (end - header.bytes_long)

    simulated(scenario)


def test_an_outage_leaves_a_minority_until_the_longest_log_is_back() -> None:
    async def scenario(world: EngineSimulation) -> None:
        leader = world.leading()
        assert leader is not None
        assert leader.log is not None
        await leader.log.propose(Record(b"known to all", 1))
        outage = asyncio.ensure_future(Outage(world, leader).run())
        await asyncio.sleep(1)
        assert leader.process is None
        assert sum(node.is_disk_quick and node.is_up for node in world.nodes) == 1

        async with timeout(DOWN_S[1] + 2 * STAY_DOWN_S[1]):
            await outage
            while world.leading() is None:
                await asyncio.sleep(0.1)

    assert simulated(scenario).failure is None


def test_an_outage_is_over_soon_after_the_rest_is_led() -> None:
    async def scenario(world: EngineSimulation) -> None:
        leader = world.leading()
        assert leader is not None
        outage = asyncio.ensure_future(Outage(world, leader).run())
        await asyncio.sleep(1.5)
        assert world.leading() is None
        seen_within_s = 0.01
        while world.leading() is None:
            await asyncio.sleep(seen_within_s)
        led_at_s = world.now

        await outage

        least_s = LED_S - LOOK_S - seen_within_s
        assert least_s <= world.now - led_at_s <= LED_S + 2 * LOOK_S

    assert simulated(scenario).failure is None


def test_clients_waiting_in_an_outage_continue_once_there_is_a_leader() -> None:
    async def scenario(world: EngineSimulation) -> None:
        kill_leader(world)
        await asyncio.sleep(0.01)
        assert world.leading() is None
        world.outages = 1
        began_s = world.now

        await world.clients._pause(10_000)

        assert world.leading() is not None
        assert world.now - began_s < 5

    assert simulated(scenario).failure is None


def test_liveness_is_bounded_by_a_few_election_timeouts() -> None:
    async def scenario(world: EngineSimulation) -> None:
        assert isinstance(world.liveness, Liveness)
        assert world.liveness.bound_s == 7.5
        kill_leader(world)
        await asyncio.sleep(10)

    world = simulated(scenario)

    assert world.failure is None
    assert world.liveness.longest_s < 2


def test_a_disk_that_hangs_works_when_every_fault_is_taken_back_though_its_process_was_dead() -> (
    None
):
    async def scenario(world: EngineSimulation) -> None:
        victim = followers_of(world)[0]
        victim.hang_disk(300)
        victim.kill()

        world.take_faults_back()
        await asyncio.sleep(5)

        assert victim.is_up
        assert victim.is_disk_quick

    assert simulated(scenario).failure is None
