"""Shard nodes as real processes: what clients and brokers see while nodes come and go."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import grpc.aio

from protos.nextgen.v1 import shard_service_pb2 as pb
from protos.nextgen.v1.shard_service_pb2_grpc import ShardServiceStub
from tests.integration.cluster_manager.managers import ROOT
from tests.integration.shards.processes import NAMESPACE, Caller, running, serves


async def test_topics_are_created_looked_up_and_served_where_the_answer_says(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (_nodes, caller):
        topics = await caller.create(*(f"t-{number}" for number in range(100)))

        answers = await asyncio.gather(*(caller.lookup(topic) for topic in topics))

        for answer in answers:
            serving = await serves(answer)
            assert (serving.serves, serving.epoch) == (True, answer.epoch)
            assert serving.has_metadata


async def test_a_thousand_first_lookups_through_the_wire_make_one_assignment(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (nodes, caller):
        (topic,) = await caller.create("hot")

        answers = await asyncio.gather(*(caller.lookup(topic) for _ in range(1_000)))

        shard_id = caller.shard_of(topic)
        for node in nodes.shard_nodes:
            events = await caller.events(nodes.endpoint(node), shard_id, "topic_assigned")
            assert [event.topic_assigned.name for event in events] == [topic]
        assert len({(answer.broker_id, answer.epoch) for answer in answers}) == 1


async def test_a_killed_leader_costs_no_acknowledged_topic_and_no_wrong_answer(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as (nodes, caller):
        topics = await caller.create(*(f"t-{number}" for number in range(50)))
        before = {topic: await caller.lookup(topic) for topic in topics}

        for round_number in range(3):
            victim = _busiest(caller)
            nodes.kill(victim)
            started = time.monotonic()
            topics += await caller.create(f"after-{round_number}")
            gap_ms = (time.monotonic() - started) * 1000
            answers = [await caller.lookup(topic) for topic in topics]
            for answer in answers:
                serving = await serves(answer)
                assert (serving.serves, serving.epoch) == (True, answer.epoch)
            assert gap_ms < 10_000
            nodes.start(victim)
            await nodes.wait_ready(victim)

        after = {topic: await caller.lookup(topic) for topic in before}
        moved = [topic for topic in before if after[topic].epoch != before[topic].epoch]
        assert not moved, "a change of leader reassigns nothing"


async def test_sigterm_hands_leadership_over_and_ends_in_time(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, caller):
        topics = await caller.create(*(f"t-{number}" for number in range(20)))
        victim = _busiest(caller)
        stop = asyncio.Event()
        gaps: list[float] = []
        looking = asyncio.create_task(_keep_looking(caller, topics, stop, gaps))

        started = time.monotonic()
        code = await asyncio.to_thread(nodes.terminate, victim)
        took_s = time.monotonic() - started
        await asyncio.sleep(1.0)
        stop.set()
        await looking

        assert code == 0
        assert took_s < 5.0
        assert max(gaps) < 3.0


async def test_a_killed_brokers_topics_move_to_the_other_one(tmp_path: Path) -> None:
    async with running(tmp_path) as (nodes, caller):
        topics = await caller.create(*(f"t-{number}" for number in range(20)))
        before = {topic: await caller.lookup(topic) for topic in topics}
        on_first = [topic for topic in topics if before[topic].broker_id == "broker-1"]
        assert on_first

        nodes.kill("broker-1")
        async with asyncio.timeout(10):
            while caller.link.view.brokers["broker-1"].is_live:
                await asyncio.sleep(0.05)
        answers = [await caller.lookup(topic) for topic in on_first]

        for topic, answer in zip(on_first, answers, strict=True):
            assert (answer.broker_id, answer.epoch) == ("broker-2", before[topic].epoch + 1)
            assert (await serves(answer)).serves


async def test_moved_topics_are_released_with_a_pointer_to_the_new_owner(tmp_path: Path) -> None:
    async with running(tmp_path) as (_nodes, caller):
        topics = await caller.create(*(f"t-{number}" for number in range(200)))
        shard_id = caller.shard_of(topics[0])
        topics = [topic for topic in topics if caller.shard_of(topic) == shard_id]
        before = [await caller.lookup(topic) for topic in topics]

        answers = await caller.move(*topics)

        for old, new in zip(before, answers, strict=True):
            assert new.broker_id != old.broker_id
            assert new.epoch == old.epoch + 1
            assert (await serves(new)).serves
            tombstone = await serves(old)
            assert not tombstone.serves
            assert (tombstone.new_broker_id, tombstone.new_epoch) == (new.broker_id, new.epoch)


async def test_events_read_anywhere_are_the_same_and_dense(tmp_path: Path) -> None:
    async with running(tmp_path, shards=1) as (nodes, caller):
        await caller.create(*(f"t-{number}" for number in range(30)))
        leader = caller.link.view.leaders[1]
        wanted = await caller.events(leader.grpc, 1)

        for node in nodes.shard_nodes:
            async with asyncio.timeout(5):
                while True:
                    events = await caller.events(nodes.endpoint(node), 1)
                    if len(events) >= len(wanted):
                        break
                    await asyncio.sleep(0.05)
            assert events[: len(wanted)] == wanted
        assert [event.position for event in wanted] == list(range(1, len(wanted) + 1))
        assert {event.shard_id for event in wanted} == {1}
        assert all(event.term and event.time_ms for event in wanted)
        assert wanted[0].WhichOneof("payload") == "slots_adopted"


async def test_a_follower_of_the_log_sees_what_is_committed_later(tmp_path: Path) -> None:
    async with running(tmp_path, shards=1) as (nodes, caller):
        request = pb.ReadEventsRequest(shard_id=1, follow=True, types=["topic_created"])
        async with grpc.aio.insecure_channel(nodes.endpoint("shard-node-2")) as channel:
            call = ShardServiceStub(channel).ReadEvents(request)
            (topic,) = await caller.create("later")

            async with asyncio.timeout(5):
                async for batch in call:
                    if batch.events:
                        break

            assert [event.topic_created.name for event in batch.events] == [topic]
            call.cancel()


async def test_a_restarted_node_opens_its_shards_without_a_cluster_manager(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, shard_nodes=1, brokers=1, shards=2) as (nodes, caller):
        (topic,) = await caller.create("kept")
        await caller.lookup(topic)
        node = nodes.shard_nodes[0]
        assert nodes.terminate(node) == 0

        # Port 1 answers nobody: the node has to go by what it remembers.
        command = nodes.arguments(node, cluster_managers="127.0.0.1:1")
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        nodes.processes[node] = process
        await nodes.wait_ready(node)

        request = pb.GetRequest(names=[pb.ObjectName(kind=3, name=topic)])
        response = await caller.pool.request(
            nodes.endpoint(node),
            pb.ShardRequest(shard_id=caller.shard_of(topic), get=request),
            timeout_ms=5_000,
        )
        assert response.get.items[0].topic.name == topic


async def test_a_malformed_request_disturbs_nobody_on_its_stream(tmp_path: Path) -> None:
    async with running(tmp_path, shard_nodes=1, brokers=1, shards=1) as (nodes, _caller):
        endpoint = nodes.endpoint("shard-node-1")
        async with grpc.aio.insecure_channel(endpoint) as channel:
            exchange = channel.stream_stream("/nextgen.v1.ShardService/Exchange")
            call = exchange()
            names = [pb.ObjectName(kind=2, name=NAMESPACE)]
            good = pb.ShardRequest(request_id=7, shard_id=1, get=pb.GetRequest(names=names))
            await call.write(b"\xff\xff\xff\xff")
            await call.write(pb.ShardRequest(request_id=8, shard_id=1).SerializeToString())
            await call.write(pb.ShardRequest(request_id=9, shard_id=99).SerializeToString())
            await call.write(good.SerializeToString())

            async with asyncio.timeout(5):
                answers = [pb.ShardResponse.FromString(await call.read()) for _ in range(4)]

            reasons = {answer.request_id: answer.error.reason for answer in answers}
            assert reasons == {
                0: "INVALID_REQUEST",
                8: "INVALID_REQUEST",
                9: "STALE_SHARD_MAP",
                7: "",
            }
            call.cancel()


async def test_every_process_shows_its_metrics(tmp_path: Path) -> None:
    async with running(tmp_path, shard_nodes=1, brokers=1, shards=1) as (nodes, caller):
        (topic,) = await caller.create("t")
        await caller.lookup(topic)

        page = await asyncio.to_thread(nodes.metrics, "shard-node-1")

        assert 'nextgen_shard_leads{shard="1"} 1.0' in page
        assert 'nextgen_shard_assignments_total{shard="1"} 1.0' in page
        assert 'nextgen_shard_broker_sessions{shard="1"} 1.0' in page


async def test_another_clusters_data_is_refused_and_not_touched(tmp_path: Path) -> None:
    async with running(tmp_path, shard_nodes=1, brokers=1, shards=1) as (nodes, _caller):
        node = nodes.shard_nodes[0]
        nodes.terminate(node)
        before = _contents(nodes.data_directory(node))

        refused = await asyncio.to_thread(
            subprocess.run,
            nodes.arguments(node, cluster_id="another"),
            cwd=ROOT,
            capture_output=True,
            timeout=20,
            check=False,
        )

        assert refused.returncode == 78
        assert b"belongs to shard 'shard-node-1' of cluster 'test'" in refused.stderr
        assert _contents(nodes.data_directory(node)) == before


def _busiest(caller: Caller) -> str:
    led: dict[str, int] = {}
    for leader in caller.link.view.leaders.values():
        led[leader.node_id] = led.get(leader.node_id, 0) + 1
    return max(led, key=lambda node: led[node])


async def _keep_looking(
    caller: Caller, topics: list[str], stop: asyncio.Event, gaps: list[float]
) -> None:
    while not stop.is_set():
        for topic in topics:
            started = time.monotonic()
            answer = await caller.lookup(topic)
            gaps.append(time.monotonic() - started)
            assert answer.broker_id, answer


def _contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
