"""What members of a subscription record, and tasks that a client would leave."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nextgen.client import st
from nextgen.client.st.domain.positions import Position
from nextgen.client.st.errors import ConnectionFailed, TimedOut
from nextgen.client.st.watching.layout_watch import LayoutWatch
from nextgen.harness.history.checks.owner_check import check_publishes
from nextgen.harness.history.model import Drained, Publish, Received
from nextgen.harness.history.record_file import Recorder, read_records
from nextgen.harness.load.pulsar.message_stamp import stamped
from nextgen.harness.load.recorded.chaos_scalable import acknowledged, left_tasks
from nextgen.harness.load.recorded.scalable_groups import Group, Member, Stage

TOPIC = "topic://a/b/c"
SEGMENT = "segment://a/b/c/0000-ffff-0"


def message(number: int, key: str = "k") -> Any:
    position = Position(1 << 20, number)
    data = stamped(2, number, 64)
    return SimpleNamespace(data=data, key=key, position=position, segment=SEGMENT)


def test_a_group_records_what_its_members_receive(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    with Recorder(path) as recorder:
        stream = Group(TOPIC, "stream", recorder)
        queue = Group(TOPIC, "queue", recorder, keeps_order=False)
        before_ns = time.monotonic_ns()
        stream.take("a", message(7))
        queue.take("b", message(8))
        stream.drained()

    first, second, drained = read_records(path)
    assert isinstance(first, Received)
    assert first.received_ns >= before_ns
    told = (first.consumer, first.producer, first.sequence, first.subscription, first.key)
    assert told == ("a", "scalable-2", 7, "stream", "k")
    assert (first.ledger, first.entry, first.segment) == (1 << 20, 7, SEGMENT)
    assert isinstance(second, Received)
    assert second.key == "", "a queue has no order"
    assert drained == Drained("", TOPIC, "stream")
    assert (stream.missing({7, 9}), queue.missing({8})) == (1, 0)


class Visitor(Member):
    """Fails at first; then receives from a consumer that has one message."""

    kind = "visitor"
    visits = 0

    async def visit(self) -> None:
        self.visits += 1
        if self.visits == 1:
            raise ConnectionFailed("nobody there")
        messages = [message(1)]

        class Consumer:
            async def receive(self, timeout_ms: int) -> st.Message[bytes]:
                if messages:
                    return messages.pop()  # type: ignore[no-any-return]
                await asyncio.sleep(0)
                raise TimedOut("nothing")

        async def done(_: st.Message[bytes]) -> None:
            self.stage.ending.set()

        await self.receive(Consumer(), done)


async def test_a_member_comes_again_after_an_error_and_stays_until_the_end(tmp_path: Path) -> None:
    with Recorder(tmp_path / "one.jsonl") as recorder:
        group, stage = Group(TOPIC, "s", recorder), Stage()
        stage.staying.set()
        member = Visitor("a", group, "pulsar://nowhere", stage, "seed")
        await member.run()

    assert (member.visits, group.seen, member.begun.is_set()) == (2, {1}, True)
    assert stage.errors == {"visitor: ConnectionFailed": 1}
    assert stage.visits == {"visitor": 1}


async def test_tasks_of_clients_that_have_not_ended_are_named() -> None:
    assert left_tasks() == []
    brokers: Any = SimpleNamespace(serving=lambda topic: asyncio.sleep(60))
    watch = LayoutWatch(
        brokers,
        TOPIC,
        create_if_missing=False,
        answer_timeout_ms=1_000,
        on_layout=lambda layout, former: None,
        on_vanished=lambda: None,
    )
    starting = asyncio.ensure_future(watch.start())
    await asyncio.sleep(0)

    assert "st-layout-connect" in left_tasks()

    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await watch.wait_closed()
    assert left_tasks() == []


def test_messages_that_a_broker_had_stored_before_are_at_no_place() -> None:
    sent = [Publish(TOPIC, "scalable-2", number, 1) for number in range(3)]
    stored = [Position(0, 0), Position(0, 0), Position(5 << 20, 7)]

    records = [
        acknowledged(each, st.MessageId(TOPIC, SEGMENT, place), 2)
        for each, place in zip(sent, stored, strict=True)
    ]

    assert [(each.ledger, each.entry, each.epoch, each.acked_ns) for each in records] == [
        (-1, -1, 0, 2),
        (-1, -1, 0, 2),
        (5 << 20, 7, 5, 2),
    ]
    assert list(check_publishes(records)) == []
