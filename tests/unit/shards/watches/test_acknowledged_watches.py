"""Watches that acknowledge, on the streams of a leader: what an effective write waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nextgen.client.wire.errors import from_detail
from nextgen.kernel.errors import InvalidRequest, NotLeader
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT, KIND_NAMESPACE, KIND_TENANT
from protos.nextgen.v1.shard_service_pb2 import WatchRenew
from shards.domain.tenant import TenantCreated, TenantPoliciesSet
from shards.watches import change_delivery, effective_writes
from shards.watches.subscriber_ids import broker_manager_id, topic_controllers_id
from tests.support.scenarios import run_by
from tests.support.shards.watch_world import Recorder, Subscriber, WatchWorld, in_watch_world

TTL_S = 3_600.0
"""No lease ends by itself where a test waits for something else."""

ACME = (KIND_TENANT, "acme")


@pytest.fixture(autouse=True)
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effective_writes, "_TTL_SECONDS", TTL_S)
    # Nothing that is waited for here may have to wait until progress is due.
    monkeypatch.setattr(change_delivery, "_PROGRESS_SECONDS", 3_600)


def watch_acme(subscriber: Subscriber, **more: object) -> Recorder:
    recorder: Recorder = subscriber.watch(
        kinds=(KIND_TENANT,), names=["acme"], acknowledged=True, **more
    )
    return recorder


async def write(world: WatchWorld, version: int) -> asyncio.Task[None]:
    """Commit a change of acme's policies, and wait in a task until it is effective."""
    position = await world.commit(TenantPoliciesSet("acme", "t-1", b"\x10\x05", version))
    assert world.effective is not None
    return asyncio.create_task(world.effective.wait(position, {ACME}, ()))


async def until_level(subscriber: Subscriber, position: int) -> None:
    """Take updates until no watch is behind, and the stream is at ``position``."""

    def is_caught_up() -> bool:
        reached, behind = subscriber.places.taken_in()
        return reached >= position and not behind

    await subscriber.until(is_caught_up)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def led_world(world: WatchWorld) -> None:
    """Lead, as if for long, with a tenant in the log."""
    await world.commit(TenantCreated("t-1", "acme"))
    world.lead()
    assert world.effective is not None
    world.effective._leads_from -= TTL_S
    world.effective._counts_from -= TTL_S


@pytest.mark.parametrize(
    "subscriber_id", [broker_manager_id("node-1", 3, 7), topic_controllers_id("node-1", "7")]
)
@run_by(in_watch_world)
async def test_a_write_that_waits_for_a_reader_waits_for_its_watch_from_when_that_is_there(
    world: WatchWorld, *, subscriber_id: str
) -> None:
    """The watch comes while the write waits: it takes the place of the expectation."""
    await led_world(world)
    subscriber = world.subscriber(subscriber_id)
    watch_other = subscriber.watch(kinds=(KIND_TENANT,), names=["other"], acknowledged=True)
    await subscriber.until_position(1)
    subscriber.acknowledge()
    await turns()
    assert world.effective is not None
    world.effective.expect_reader([ACME], subscriber_id)
    waiting = await write(world, 1)
    await turns()

    recorder = watch_acme(subscriber)
    await turns()
    assert not waiting.done()

    await subscriber.until(lambda: recorder.snapshot_position is not None)
    await until_level(subscriber, 2)
    assert not waiting.done()
    subscriber.acknowledge()
    await waiting
    assert watch_other.events == []


@run_by(in_watch_world)
async def test_a_write_is_effective_once_the_watch_has_acknowledged_it(
    world: WatchWorld,
) -> None:
    await led_world(world)
    subscriber = world.subscriber()
    recorder = watch_acme(subscriber)
    await subscriber.until_position(1)
    subscriber.acknowledge()
    for version in (1, 2, 3):
        waiting = await write(world, version)
        await subscriber.until(lambda version=version: len(recorder.events) == version)
        await until_level(subscriber, 1 + version)
        await turns()
        assert not waiting.done(), "it was told, and nobody has said that it took effect"

        subscriber.acknowledge()
        await waiting


@run_by(in_watch_world)
async def test_acknowledgements_from_before_a_watch_began_do_not_count(world: WatchWorld) -> None:
    """1. A subscriber is at 2. 2. It adds a watch. 3. What it said before is no word on that."""
    await led_world(world)
    subscriber = world.subscriber()
    subscriber.watch(kinds=(KIND_NAMESPACE,), names=["a/b"], acknowledged=True)
    await world.commit(TenantPoliciesSet("acme", "t-1", b"\x10\x05", 1))
    await subscriber.until_position(2)
    subscriber.acknowledge()
    watch_acme(subscriber)
    assert world.effective is not None
    waiting = asyncio.create_task(world.effective.wait(2, {ACME}, ()))
    await turns()
    assert not waiting.done()

    subscriber.acknowledge()
    await turns()
    assert not waiting.done(), "the watch is behind, and it says so"

    await subscriber.until_position(2)
    await until_level(subscriber, 2)
    subscriber.acknowledge()
    await waiting


@run_by(in_watch_world)
async def test_a_watch_that_reconnects_receives_what_it_missed_before_it_acknowledges(
    world: WatchWorld,
) -> None:
    await led_world(world)
    subscriber = world.subscriber()
    recorder = watch_acme(subscriber)
    await subscriber.until_position(1)
    subscriber.acknowledge()
    subscriber.disconnect()
    waiting = await write(world, 1)
    await turns()
    assert not waiting.done(), "he may rely on what he knew"

    subscriber.connect()
    subscriber.acknowledge()
    await turns()
    assert not waiting.done()
    await subscriber.until(lambda: bool(recorder.events))
    await subscriber.until_position(2)
    await until_level(subscriber, 2)
    subscriber.acknowledge()
    await waiting


def test_a_watch_that_never_reconnects_delays_a_write_by_one_time_to_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effective_writes, "_TTL_SECONDS", 0.5)

    async def scenario(world: WatchWorld) -> None:
        await led_world(world)
        subscriber = world.subscriber()
        watch_acme(subscriber)
        await subscriber.until_position(1)
        subscriber.acknowledge()
        subscriber.disconnect()

        await (await write(world, 1))

    in_watch_world(tmp_path, scenario)


@run_by(in_watch_world)
async def test_a_write_that_changed_nothing_does_not_wait_for_the_next_tick(
    world: WatchWorld,
) -> None:
    """Its position is that of an event that the watch does not match."""
    await led_world(world)
    subscriber = world.subscriber()
    watch_acme(subscriber)
    await subscriber.until_position(1)
    subscriber.acknowledge()
    await world.commit(TenantCreated("t-2", "other"))
    assert world.effective is not None
    waiting = asyncio.create_task(world.effective.wait(2, {ACME}, ()))
    await until_level(subscriber, 2)
    await turns()
    assert not waiting.done()

    subscriber.acknowledge()
    await waiting


@run_by(in_watch_world)
async def test_leased_watches_are_prompted_as_well(world: WatchWorld) -> None:
    await led_world(world)
    subscriber = world.subscriber()
    subscriber.watch(kinds=(KIND_ASSIGNMENT,), leased=True, without_snapshot=True)
    await subscriber.until_position(1)
    subscriber.acknowledge()
    waiting = await write(world, 1)
    await subscriber.until_position(2)
    await turns()
    assert not waiting.done()

    subscriber.acknowledge()
    await waiting


@run_by(in_watch_world)
async def test_only_the_leader_serves_watches_that_acknowledge(world: WatchWorld) -> None:
    await world.commit(TenantCreated("t-1", "acme"))
    subscriber = world.subscriber()
    watch_acme(subscriber)

    update = await subscriber.step()

    assert isinstance(from_detail(update.error), NotLeader)


@pytest.mark.parametrize("leased_first", [True, False])
@run_by(in_watch_world)
async def test_leased_and_acknowledged_watches_do_not_share_a_stream(
    world: WatchWorld, *, leased_first: bool
) -> None:
    await led_world(world)
    subscriber = world.subscriber()
    leased = {"watch_id": 1, "kinds": [KIND_ASSIGNMENT], "leased": True}
    acknowledged = {
        "watch_id": 2,
        "kinds": [KIND_TENANT],
        "names": ["acme"],
        "acknowledged": True,
    }
    first, second = (leased, acknowledged) if leased_first else (acknowledged, leased)
    subscriber.ask(**first)
    subscriber.ask(**second)

    while not (update := await subscriber.step()).HasField("error"):
        pass

    assert update.watch_id == second["watch_id"]
    assert isinstance(from_detail(update.error), InvalidRequest)


@run_by(in_watch_world)
async def test_a_renewal_of_a_stream_without_such_watches_changes_nothing(
    world: WatchWorld,
) -> None:
    await led_world(world)
    subscriber = world.subscriber()
    recorder = subscriber.watch(kinds=(KIND_TENANT,), names=["acme"])
    assert subscriber.stream is not None
    subscriber.stream.renew(WatchRenew(acked_position=2**60, behind=[7]))
    await subscriber.until_position(1)
    assert len(recorder.items) == 1

    await (await write(world, 1))
