"""One subscriber over real streams: from leader to leader without gap or duplicate."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from nextgen.client.changes import shard_watch
from nextgen.client.changes.shard_watch import ShardWatch
from nextgen.client.changes.watch_requests import WatchRequests
from nextgen.client.transport.stream_call import stream_call
from nextgen.client.wire.errors import error_of_rpc
from nextgen.kernel.errors import InvalidRequest, MetadataError, Overloaded, PositionAhead
from nextgen.kernel.limits.stream import WATCH_PROGRESS_MS
from nextgen.tasks.timeouts import timeout
from protos.nextgen.v1.inventory_pb2 import KIND_ASSIGNMENT, KIND_TOPIC, Item
from protos.nextgen.v1.shard_service_pb2 import (
    WatchAdd,
    WatchOpen,
    WatchShardRequest,
    WatchShardUpdate,
)
from shards.adapters import watch_stream
from shards.domain import assignment, topic
from shards.watches import change_lease, effective_writes
from shards.watches.effective_writes import EffectiveWrites
from shards.watches.subscriber_ids import broker_manager_id
from tests.support.scenarios import run_by
from tests.support.shards.events import TIME_MS
from tests.support.shards.watch_server import FakeLink, WatchServer, eventually
from tests.support.shards.watch_world import SHARD, Recorder, WatchWorld

ROOT = "persistent://acme/orders"


def created(name: str) -> topic.TopicCreated:
    return topic.TopicCreated(f"id-of-{name}", f"{ROOT}/{name}", 0, "ns-1", TIME_MS)


def assigned(name: str, epoch: int = 1) -> assignment.TopicAssigned:
    full = f"{ROOT}/{name}"
    return assignment.TopicAssigned("topic", "", full, epoch, "broker-1", "session-1", "moved")


class Cluster:
    """Two replicas that are committed to alike, and a link."""

    def __init__(self, worlds: list[WatchWorld], servers: list[WatchServer]) -> None:
        self.worlds = worlds
        self.servers = servers
        self.link = FakeLink()
        self.link.place(*(server.endpoint for server in servers))

    async def commit(self, *events: Any) -> int:
        """Commit at both; return the position."""
        position = 0
        for world in self.worlds:
            position = await world.commit(*events)
        return position

    def lead(self, number: int) -> None:
        self.link.lead(self.servers[number].endpoint)

    @asynccontextmanager
    async def watching(self, **options: Any) -> AsyncIterator[ShardWatch]:
        watch = ShardWatch(SHARD, "subscriber-1", self.link, **options)
        running = asyncio.create_task(watch.run())
        try:
            yield watch
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def in_cluster(scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as directory:
            worlds = [WatchWorld(Path(directory) / name) for name in ("one", "two")]
            servers = [WatchServer(world) for world in worlds]
            for server in servers:
                await server.start()
            try:
                await scenario(Cluster(worlds, servers))
            finally:
                for server in servers:
                    await server.stop()
                for world in worlds:
                    await world.close()

    asyncio.run(main())


@pytest.fixture
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease ends by itself: a write that is effective was acknowledged."""
    monkeypatch.setattr(effective_writes, "_TTL_SECONDS", 3_600)


def led_for_long(world: WatchWorld) -> EffectiveWrites:
    world.lead()
    assert world.effective is not None
    world.effective._leads_from -= effective_writes._TTL_SECONDS
    world.effective._counts_from -= effective_writes._TTL_SECONDS
    return world.effective


@pytest.fixture
def slow_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream may be opened late: this process, which is both its ends, may stand still."""
    monkeypatch.setattr(watch_stream, "WATCH_OPEN_MS_MAX", 60_000)


@run_by(in_cluster)
async def test_a_watch_follows_from_leader_to_leader_and_goes_on_where_it_was(
    cluster: Cluster,
) -> None:
    await cluster.commit(created("a"))
    cluster.lead(0)
    seen, other = Recorder(), Recorder()
    async with cluster.watching() as watch:
        watch.add(seen, kinds=[KIND_TOPIC])
        watch.add(other, kinds=[KIND_TOPIC], names=[f"{ROOT}/c"])
        await cluster.commit(created("b"))
        await eventually(lambda: seen.position == other.position == 2)
        cluster.lead(1)
        await cluster.commit(created("c"), created("d"))
        await eventually(lambda: seen.position >= 4)
        # One that was given up while this process stood still ends a little later.
        await eventually(lambda: cluster.worlds[1].hub.stream_count == 1)
        await cluster.servers[1].stop()
        await cluster.commit(created("e"))
        cluster.lead(0)
        await eventually(lambda: seen.position >= 5 and other.position >= 5)

    begun = seen.snapshot_position or 0
    assert len(seen.items) == begun
    assert [*range(1, begun + 1), *seen.positions] == [1, 2, 3, 4, 5]
    assert other.positions == [3]
    assert (seen.resets, watch.resets) == (1, 0)
    hub = cluster.worlds[0].hub
    await eventually(lambda: hub.stream_count == hub.watch_count == 0)


@run_by(in_cluster)
async def test_a_watch_may_be_added_and_removed_while_the_stream_stands(cluster: Cluster) -> None:
    await cluster.commit(created("a"))
    cluster.lead(0)
    first, second = Recorder(), Recorder()
    async with cluster.watching() as watch:
        first_id = watch.add(first, kinds=[KIND_TOPIC])
        await eventually(lambda: first.position == 1)
        watch.add(second, kinds=[KIND_TOPIC], from_position=1)
        watch.remove(first_id)
        watch.remove(99)
        await cluster.commit(created("b"))
        await eventually(lambda: second.position == 2)
        assert (first.positions, second.positions) == ([], [2])
        assert watch.position_of(first_id) == 0
        await eventually(lambda: cluster.worlds[0].hub.watch_count == 1)


def test_any_replica_serves_a_subscriber_that_does_not_need_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def noted_call(endpoint: str, *more: Any) -> Any:
        asked.append(endpoint)
        return stream_call(endpoint, *more)

    monkeypatch.setattr(shard_watch, "stream_call", noted_call)

    async def scenario(cluster: Cluster) -> None:
        await cluster.commit(created("a"))
        cluster.lead(0)
        # Who comes too late to the other one asks the leader, and then the other one again.
        await cluster.servers[0].stop()
        seen = Recorder()
        async with cluster.watching(at_leader=False) as watch:
            watch.add(seen, kinds=[KIND_TOPIC])
            await eventually(lambda: seen.position == 1)
            await eventually(lambda: cluster.worlds[1].hub.stream_count == 1)
            assert asked[0] == cluster.servers[1].endpoint
            assert watch.is_current
            assert "current" in repr(watch)

    in_cluster(scenario)


@run_by(in_cluster)
async def test_a_replica_that_is_behind_is_left_for_the_leader(cluster: Cluster) -> None:
    await cluster.commit(created("a"))
    await cluster.worlds[0].commit(created("b"))
    cluster.worlds[1].log.lose_leadership()
    cluster.lead(0)
    seen = Recorder()
    async with cluster.watching(at_leader=False) as watch:
        watch.add(seen, kinds=[KIND_TOPIC], from_position=2)
        await cluster.worlds[0].commit(created("c"))
        await eventually(lambda: seen.position == 3)
    assert seen.positions == [3]


@run_by(in_cluster)
async def test_what_the_leader_refuses_for_good_ends_the_watch_and_no_other(
    cluster: Cluster,
) -> None:
    await cluster.commit(created("a"))
    cluster.lead(0)
    ahead, unsound, sound = Recorder(), Recorder(), Recorder()
    async with cluster.watching() as watch:
        watch.add(ahead, kinds=[KIND_TOPIC], from_position=7)
        watch.add(unsound, kinds=[])
        watch.add(sound, kinds=[KIND_TOPIC])
        await eventually(lambda: ahead.error is not None and unsound.error is not None)
        await cluster.commit(created("b"))
        await eventually(lambda: sound.position == 2)
    assert isinstance(ahead.error, PositionAhead)
    assert isinstance(unsound.error, InvalidRequest)
    assert sound.error is None


@pytest.mark.usefixtures("long_leases")
@run_by(in_cluster)
async def test_a_leased_watch_is_confirmed_and_a_move_waits_for_what_it_took_in(
    cluster: Cluster,
) -> None:
    effective = led_for_long(cluster.worlds[0])
    await cluster.commit(created("a"))
    cluster.lead(0)
    leased, plain = Recorder(), Recorder()
    leases: list[tuple[int, int, int]] = []
    async with cluster.watching() as watch:
        watch.add(
            leased,
            kinds=[KIND_ASSIGNMENT],
            leased=True,
            on_lease=lambda at, ttl: leases.append((at, ttl, leased.position)),
        )
        watch.add(plain, kinds=[KIND_TOPIC])
        await eventually(lambda: bool(leases))
        last = await cluster.commit(created("b"), assigned("a"))
        await effective.wait_assigned(last, {(KIND_ASSIGNMENT, f"{ROOT}/a")}, ())
        assert leased.position == last
        assert [event.topic_assigned.broker_id for event in leased.events] == ["broker-1"]
        assert leased.events[0].position == last
        await eventually(lambda: plain.position == last)
        before = len(leases)
        await eventually(lambda: len(leases) > before + 1)
    now_ms = int(asyncio.get_running_loop().time() * 1000)
    assert {ttl for _, ttl, _ in leases} == {2_000}
    assert [at for at, _, _ in leases] == sorted(at for at, _, _ in leases)
    assert 0 < leases[0][0] <= leases[-1][0] <= now_ms
    assert (leased.resets, leased.items) == (1, [])


@run_by(in_cluster)
async def test_a_leased_watch_goes_where_the_leader_is(cluster: Cluster) -> None:
    cluster.worlds[1].lead()
    await cluster.commit(created("a"))
    cluster.lead(0)
    leased, plain = Recorder(), Recorder()
    async with cluster.watching() as watch:
        watch.add(leased, kinds=[KIND_ASSIGNMENT], leased=True)
        watch.add(plain, kinds=[KIND_TOPIC])
        await eventually(lambda: watch.heard_at > 0)
        cluster.lead(1)
        last = await cluster.commit(assigned("a"))
        await eventually(lambda: leased.position == plain.position == last)
        assert leased.error is None


@run_by(in_cluster)
async def test_a_renewal_carries_whether_creations_may_wait_when_it_is_sent(
    cluster: Cluster,
) -> None:
    world = cluster.worlds[0]
    world.lead()
    cluster.lead(0)
    may_wait = True
    renewals: list[bool] = []
    async with cluster.watching() as watch:
        watch.let_creations_wait_with(lambda: may_wait)
        watch.renew_lease()  # Without a stream, and without a lease: nothing to renew.
        watch.add(Recorder(), kinds=[KIND_ASSIGNMENT], leased=True, on_created=lambda _names: None)
        await eventually(lambda: watch.is_current)
        (lease,) = world.hub.source.leased
        renew = lease.renew  # type: ignore[attr-defined]
        lease.renew = lambda sent: (  # type: ignore[attr-defined]
            renewals.append(sent.creations_may_wait),
            renew(sent),
        )
        await eventually(lambda: True in renewals)
        may_wait = False
        watch.renew_lease()
        await eventually(lambda: False in renewals)

    assert renewals == sorted(renewals, reverse=True), "in the order of the changes"


def test_a_stream_at_rest_may_be_silent_for_longer_until_its_lease_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. The lease rests, and the stream is silent for longer than a time-to-live. 2. The shard
    stops answering. 3. The lease is needed: its silence counts from there on."""
    monkeypatch.setattr(shard_watch, "ASSIGNMENT_TTL_MS", 300)
    monkeypatch.setattr(change_lease, "_UPDATE_SECONDS", 0.05)

    async def scenario(cluster: Cluster) -> None:
        world = cluster.worlds[0]
        world.lead()
        cluster.lead(0)
        may_rest = True
        async with cluster.watching() as watch:
            watch.let_lease_rest_with(lambda: may_rest)
            confirmed: list[int] = []
            watch.add(
                Recorder(),
                kinds=[KIND_ASSIGNMENT],
                leased=True,
                on_lease=lambda at_ms, _ttl_ms: confirmed.append(at_ms),
            )
            await eventually(lambda: bool(confirmed) and watch.rests)
            await asyncio.sleep(WATCH_PROGRESS_MS / 1_000)  # Of the stream before its watch.
            heard_at = watch.heard_at
            await asyncio.sleep(0.6)
            assert watch.is_current
            assert watch.heard_at == heard_at, "nothing came meanwhile"

            asked_at = asyncio.get_running_loop().time()
            may_rest = False
            watch.renew_lease()
            await eventually(lambda: watch.heard_at > asked_at)
            assert watch.is_current
            assert watch.heard_at - asked_at < 0.3

            may_rest = True
            await eventually(lambda: watch.rests)
            await asyncio.sleep(0.2)
            stuck = asyncio.Event()
            monkeypatch.setattr(world.log, "read_index", lambda **_: stuck.wait())
            may_rest = False
            watch.renew_lease()
            await eventually(lambda: not watch.is_current)

    in_cluster(scenario)


async def _call(channel: grpc.aio.Channel) -> Any:
    method: Any = channel.stream_stream(
        "/nextgen.v1.ShardService/Watch",
        request_serializer=lambda each: (
            each if isinstance(each, bytes) else each.SerializeToString()
        ),
        response_deserializer=WatchShardUpdate.FromString,
    )
    return method()


async def _read_to_the_end(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


OPEN = WatchShardRequest(open=WatchOpen(shard_id=SHARD, subscriber_id="raw"))


@pytest.mark.parametrize(
    ("requests", "says"),
    [
        ([WatchShardRequest(add=WatchAdd(watch_id=1))], "the first message"),
        ([WatchShardRequest(open=WatchOpen(shard_id=SHARD))], "send its id"),
        ([WatchShardRequest(open=WatchOpen(subscriber_id="x" * 513))], "512 bytes"),
        ([WatchShardRequest(open=WatchOpen(subscriber_id="x" * 512)), OPEN], "opened before"),
        ([OPEN, OPEN], "opened before"),
        ([OPEN, WatchShardRequest()], "of this kind"),
        ([OPEN, WatchShardRequest(add=WatchAdd(kinds=[KIND_TOPIC]))], "begin at 1"),
        ([OPEN, b"\xff\xff\xff"], "is not what Watch takes"),
    ],
)
@pytest.mark.usefixtures("slow_opening")
@run_by(in_cluster)
async def test_what_makes_no_sense_on_a_stream_ends_it_by_name(
    cluster: Cluster, *, requests: list[Any], says: str
) -> None:
    async with grpc.aio.insecure_channel(cluster.servers[0].endpoint) as channel:
        call = await _call(channel)
        for request in requests:
            await call.write(request)
        async with timeout(30):
            update = await call.read()
            while not update.HasField("error"):
                update = await call.read()
            assert await call.read() is grpc.aio.EOF
    assert (update.watch_id, update.error.reason) == (0, "INVALID_REQUEST")
    assert says in update.error.message
    await eventually(lambda: cluster.worlds[0].hub.stream_count == 0)


@pytest.mark.usefixtures("slow_opening")
def test_a_subscriber_that_stops_reading_is_ended_by_name_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch_stream, "_STALLED_SECONDS", 3.0)

    async def scenario(cluster: Cluster) -> None:
        large = (("large", "x" * 50_000),)
        await cluster.commit(created("a"))
        cluster.lead(0)
        hub = cluster.worlds[0].hub
        seen = Recorder()
        async with (
            grpc.aio.insecure_channel(cluster.servers[0].endpoint) as channel,
            cluster.watching() as watch,
        ):
            watch.add(seen, kinds=[KIND_TOPIC], from_position=1)
            call = await _call(channel)
            await call.write(OPEN)
            add = WatchAdd(watch_id=1, kinds=[KIND_TOPIC], from_position=1)
            await call.write(WatchShardRequest(add=add))
            await eventually(lambda: hub.watch_count == 2)
            last = 0
            for _ in range(200):
                last = await cluster.worlds[0].commit(topic.TopicPropertiesSet(f"{ROOT}/a", large))
            await eventually(lambda: hub.stream_count == 1)
            assert cluster.worlds[0].counted("watch_stalled") == 1
            await eventually(lambda: seen.position == last)
            assert seen.positions == list(range(2, last + 1))
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await _read_to_the_end(call)
        error: MetadataError = error_of_rpc(ended.value)
        assert isinstance(error, Overloaded)
        assert "took nothing" in str(error)

    in_cluster(scenario)


def test_a_stream_that_is_not_opened_in_time_is_ended_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch_stream, "WATCH_OPEN_MS_MAX", 50)

    async def scenario(cluster: Cluster) -> None:
        async with grpc.aio.insecure_channel(cluster.servers[0].endpoint) as channel:
            call = await _call(channel)
            async with timeout(30):
                update = await call.read()
        assert update.error.reason == "INVALID_REQUEST"
        assert "was not opened" in update.error.message

    in_cluster(scenario)


# Effective writes ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("long_leases")
@run_by(in_cluster)
async def test_an_acknowledged_watch_reports_its_position_by_itself(cluster: Cluster) -> None:
    effective = led_for_long(cluster.worlds[0])
    cluster.lead(0)
    async with cluster.watching() as watch:
        recorder = Recorder()
        names = [f"{ROOT}/a"]
        watch.add(recorder, kinds=(KIND_TOPIC,), names=names, acknowledged=True)
        await eventually(lambda: recorder.snapshot_position is not None)
        for number in range(3):
            policies = topic.TopicPoliciesSet(names[0], "id-of-a", b"\x10\x05", 1 + number)
            position = await cluster.commit(*([created("a")] if not number else []), policies)
            await effective.wait(position, {(KIND_TOPIC, names[0])}, ())
            assert recorder.events[-1].position == position


async def test_nothing_is_acknowledged_by_updates_that_leave_their_watch_behind() -> None:
    """A watch is behind until an update carries nothing but its id and a position."""
    watch = ShardWatch(SHARD, "manager", FakeLink())
    recorder, names = Recorder(), [f"{ROOT}/a"]
    watch_id = watch.add(recorder, kinds=(KIND_TOPIC,), names=names, acknowledged=True)
    requests = watch._requests = WatchRequests(SHARD, "manager")
    item = Item(kind=KIND_TOPIC, name=names[0])
    sent: list[bool] = []
    for update in (
        WatchShardUpdate(watch_id=watch_id, items=[item]),
        WatchShardUpdate(watch_id=watch_id, position=5, snapshot_complete=True),
        WatchShardUpdate(position=5),
        WatchShardUpdate(watch_id=watch_id, position=5),
    ):
        watch._take(update, "node-1:1")
        sent.append(requests._renewal is not None)
        requests._renewal = None

    assert recorder.snapshot_position == 5
    assert sent == [False, False, True, True], "what concerns the whole stream is acknowledged"
    assert watch._renewal().behind == []


@pytest.mark.usefixtures("long_leases")
@run_by(in_cluster)
async def test_what_has_not_taken_effect_is_not_acknowledged_until_it_has(cluster: Cluster) -> None:
    effective = led_for_long(cluster.worlds[0])
    cluster.lead(0)
    in_effect = [0]
    async with cluster.watching() as watch:
        watch.acknowledge_with(lambda position: min(position, in_effect[0]))
        recorder = Recorder()
        names = [f"{ROOT}/a"]
        watch.add(recorder, kinds=(KIND_TOPIC,), names=names, acknowledged=True)
        await eventually(lambda: recorder.snapshot_position is not None)
        position = await cluster.commit(created("a"))
        waiting = asyncio.create_task(effective.wait(position, {(KIND_TOPIC, names[0])}, ()))
        await eventually(lambda: recorder.events)
        await eventually(lambda: watch.position >= position)
        assert not waiting.done()

        in_effect[0] = position
        watch.acknowledge()

        await waiting


@pytest.mark.usefixtures("long_leases")
@run_by(in_cluster)
async def test_that_all_is_watched_is_sent_with_the_acknowledgements_behind_every_watch(
    cluster: Cluster,
) -> None:
    effective = led_for_long(cluster.worlds[0])
    cluster.lead(0)
    terms = [2]
    effective.expect_managers((9,), term=3)
    manager = broker_manager_id("node-1", 9, 5)
    watch = ShardWatch(SHARD, manager, cluster.link)
    watch.complete_with(lambda: terms[0])
    recorder = Recorder()
    watch.add(recorder, kinds=(KIND_TOPIC,), names=[f"{ROOT}/a"], acknowledged=True)
    running = asyncio.create_task(watch.run())
    try:
        await eventually(lambda: recorder.snapshot_position is not None)
        position = await cluster.commit(created("b"))
        await eventually(lambda: watch.position >= position)
        assert list(effective.returning.expected(0.0)) == [9], "it knows an earlier term"

        terms[0] = 3
        watch.acknowledge()
        await eventually(lambda: not effective.returning.expected(0.0))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.usefixtures("long_leases")
@run_by(in_cluster)
async def test_what_is_withheld_of_one_watch_is_acknowledged_of_the_others(
    cluster: Cluster,
) -> None:
    effective = led_for_long(cluster.worlds[0])
    cluster.lead(0)
    withheld: set[int] = set()
    async with cluster.watching() as watch:
        watch.withhold_with(lambda: withheld)
        recorders = [Recorder(), Recorder()]
        names = [f"{ROOT}/a", f"{ROOT}/b"]
        watch_ids = [
            watch.add(recorder, kinds=(KIND_TOPIC,), names=[name], acknowledged=True)
            for recorder, name in zip(recorders, names, strict=True)
        ]
        await eventually(lambda: all(each.snapshot_position is not None for each in recorders))
        withheld.add(watch_ids[0])
        position = await cluster.commit(created("a"), created("b"))
        waiting = asyncio.create_task(effective.wait(position, {(KIND_TOPIC, names[0])}, ()))
        await effective.wait(position, {(KIND_TOPIC, names[1])}, ())
        await eventually(lambda: recorders[0].events)
        assert not waiting.done()

        withheld.clear()
        watch.acknowledge()

        await waiting


@run_by(in_cluster)
async def test_it_is_told_whenever_a_watch_has_caught_up_and_streams_that_broke_are_counted(
    cluster: Cluster,
) -> None:
    await cluster.commit(created("a"))
    cluster.lead(0)
    seen, told = Recorder(), []
    async with cluster.watching() as watch:
        watch_id = watch.add(
            seen,
            kinds=[KIND_TOPIC],
            on_caught_up=lambda: told.append((seen.position, watch.is_caught_up(watch_id))),
        )
        await eventually(lambda: bool(told))
        assert (told, watch.breaks) == ([(1, True)], 0)

        cluster.lead(1)
        await eventually(lambda: len(told) == 2)
        assert (told[1], watch.breaks) == ((1, True), 1)


@run_by(in_cluster)
async def test_a_stream_that_is_silent_for_longer_than_allowed_begins_anew(
    cluster: Cluster,
) -> None:
    await cluster.commit(created("a"))
    cluster.lead(0)
    # A shard sends its position every WATCH_PROGRESS_MS.
    async with cluster.watching(silence_ms=WATCH_PROGRESS_MS // 10) as watch:
        watch.add(Recorder(), kinds=[KIND_TOPIC])
        await eventually(lambda: watch.breaks >= 2)
