"""A broker whose slot moves goes on with its session at the next manager."""

from __future__ import annotations

import asyncio
from pathlib import Path

from nextgen.kernel.errors import StaleShardMap
from protos.nextgen.v1 import broker_service_pb2 as broker_pb
from shards.sessions.session_hello import LET_GO_S
from tests.support.shards.harness import Harness, in_shard

MOVED = StaleShardMap("the slot went", 1, moved_to=2, moved_slots=((0, 9),))


def test_a_broker_goes_on_with_its_session_at_its_next_manager(tmp_path: Path) -> None:
    """One shard is both managers here: what matters is that nothing of the first is left."""

    async def story(shard: Harness) -> None:
        gone, stays = await shard.start_broker("broker-1"), await shard.start_broker("broker-2")
        before = gone.session_id
        manager = shard.leader.brokers
        manager.sessions.let_go(lambda broker_id: broker_id == "broker-1", MOVED)
        await asyncio.sleep(0)

        assert gone.connection is not None
        assert gone.connection.error is MOVED
        assert stays.connection is not None
        assert stays.connection.error is None
        assert [each.broker_id for each in manager.sessions.statuses()] == ["broker-2"]
        gone.freeze()
        manager.take_over(lambda broker_id: broker_id == "broker-1")
        await gone.connect()
        assert (gone.session_id, gone.resumed) == (before, True)
        assert gone.is_asked_what_it_holds
        report = broker_pb.BrokerMessage(held=broker_pb.HeldMetadata(complete=True))
        manager.sessions.receive(gone.connection, report)
        # What the first manager watched for it is given up, the session is not.
        await asyncio.sleep(LET_GO_S + 1.0)
        assert shard.cluster.broker("broker-1") is not None

    in_shard(tmp_path, story)


def test_a_broker_that_does_not_come_to_its_next_manager_loses_its_session(tmp_path: Path) -> None:
    async def story(shard: Harness) -> None:
        broker = await shard.start_broker("broker-1")
        manager = shard.leader.brokers
        manager.sessions.let_go(lambda _broker_id: True, MOVED)
        await asyncio.sleep(0)
        broker.freeze()
        manager.take_over(lambda _broker_id: True)

        await shard.wait_ended("broker-1")

    in_shard(tmp_path, story)
