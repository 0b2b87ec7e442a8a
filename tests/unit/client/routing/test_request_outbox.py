"""Which requests of one stream share a message, and how long one waits for that."""

from __future__ import annotations

import asyncio

import pytest

from nextgen.client.routing import request_outbox
from nextgen.client.routing.request_outbox import RequestOutbox, is_slow
from nextgen.kernel.limits.stream import (
    EXCHANGE_BATCH_BYTES_MAX,
    EXCHANGE_BATCH_REQUESTS_MAX,
    EXCHANGE_HOLD_BEHIND_SLOW_MS,
    EXCHANGE_HOLD_MS,
)
from protos.nextgen.v1 import shard_service_pb2 as pb
from tests.support.simulated.virtual_time import run_virtual


class Stream:
    """An outbox whose messages are written at once; notes each with its time in milliseconds."""

    def __init__(self, *, takes_batches: bool = True) -> None:
        self.outbox = RequestOutbox()
        if takes_batches:
            self.outbox.answered(0, takes_batches=True)
        self.sent: list[list[int]] = []
        self.sent_at_ms: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._writer = asyncio.create_task(self._write())

    def put(self, *request_ids: int, is_slow: bool = False, size: int = 0) -> None:
        for request_id in request_ids:
            self.outbox.put(request_id, encoded(request_id, size), is_slow=is_slow)

    async def settle(self) -> list[list[int]]:
        """Return the messages so far, once the writer has done what it may."""
        for _ in range(5):
            await asyncio.sleep(0)
        return self.sent

    async def _write(self) -> None:
        while True:
            message = pb.ShardRequest.FromString(await self.outbox.take())
            requests = [pb.ShardRequest.FromString(each) for each in message.batch] or [message]
            self.sent.append([each.request_id for each in requests])
            self.sent_at_ms.append(round(1_000 * (self._loop.time() - self._began_at), 3))


def encoded(request_id: int, size: int = 0) -> bytes:
    """Return a request of at least ``size`` bytes, exactly so many where ``size`` is large."""
    request = pb.ShardRequest(request_id=request_id)
    if size:
        request.trace_id = "x" * size
        request.trace_id = "x" * (2 * size - request.ByteSize())
        assert request.ByteSize() == size
    return request.SerializeToString()


def test_a_lone_request_is_sent_at_once_and_what_follows_goes_together_behind_its_answer() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.put(1)
        assert await stream.settle() == [[1]]

        stream.put(2, 3)
        await stream.settle()
        stream.put(4)
        assert await stream.settle() == [[1]]

        stream.outbox.answered(1, takes_batches=True)
        assert await stream.settle() == [[1], [2, 3, 4]]
        assert stream.sent_at_ms == [0, 0]

    run_virtual(scenario)


def test_the_first_answer_to_the_latest_message_ends_the_wait_and_no_earlier_one() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.put(1, 2)
        await stream.settle()
        stream.outbox.answered(1, takes_batches=True)
        stream.put(3, 4)
        await stream.settle()
        stream.put(5)

        stream.outbox.answered(2, takes_batches=True)
        assert await stream.settle() == [[1, 2], [3, 4]]

        stream.outbox.answered(4, takes_batches=True)
        assert await stream.settle() == [[1, 2], [3, 4], [5]]

    run_virtual(scenario)


@pytest.mark.parametrize(
    ("slow", "hold_ms"),
    [
        ((True, True), EXCHANGE_HOLD_BEHIND_SLOW_MS),
        ((True, False), EXCHANGE_HOLD_MS),
        ((False, False), EXCHANGE_HOLD_MS),
    ],
)
def test_a_request_that_is_answered_late_delays_others_by_the_hold(
    slow: tuple[bool, ...], hold_ms: int
) -> None:
    async def scenario() -> None:
        stream = Stream()
        for request_id, one_is_slow in enumerate(slow, 1):
            stream.put(request_id, is_slow=one_is_slow)
        await stream.settle()
        stream.put(3)
        await asyncio.sleep(1)

        assert stream.sent == [[1, 2], [3]]
        assert stream.sent_at_ms == [0, hold_ms]

    run_virtual(scenario)


def test_a_peer_of_an_earlier_release_gets_each_request_at_once_in_its_own_message() -> None:
    async def scenario() -> None:
        stream = Stream(takes_batches=False)
        stream.put(1, 2, 3)
        assert await stream.settle() == [[1], [2], [3]]

        stream.outbox.answered(1, takes_batches=False)
        stream.put(4, 5)
        assert await stream.settle() == [[1], [2], [3], [4], [5]]

    run_virtual(scenario)


def test_exchange_batch_requests_max_go_in_a_message_without_waiting_and_one_more_waits() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.put(1)
        await stream.settle()
        full = [*range(2, 2 + EXCHANGE_BATCH_REQUESTS_MAX)]

        stream.put(*full[:-1])
        assert await stream.settle() == [[1]]
        stream.put(full[-1], full[-1] + 1)
        assert await stream.settle() == [[1], full]

    run_virtual(scenario)


def test_exchange_batch_bytes_max_go_in_a_message_and_one_byte_more_does_not() -> None:
    async def scenario() -> None:
        half = EXCHANGE_BATCH_BYTES_MAX // 2
        stream = Stream()
        stream.put(1, 2, size=half)
        assert await stream.settle() == [[1, 2]]
        stream.outbox.answered(1, takes_batches=True)

        stream.put(3, size=half)
        stream.put(4, size=half + 1)
        assert await stream.settle() == [[1, 2], [3]]
        stream.outbox.answered(3, takes_batches=True)
        assert await stream.settle() == [[1, 2], [3], [4]]

    run_virtual(scenario)


def test_a_request_that_nobody_waits_for_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_outbox, "EXCHANGE_BATCH_BYTES_MAX", 40)

    async def scenario() -> None:
        stream = Stream()
        stream.put(1)
        await stream.settle()
        stream.put(2, size=30)
        stream.outbox.withdraw(2)
        stream.put(3, size=30)

        # Neither does it count towards the bytes that end the wait.
        assert await stream.settle() == [[1]]
        stream.outbox.answered(1, takes_batches=True)
        assert await stream.settle() == [[1], [3]]

    run_virtual(scenario)


def test_a_closed_outbox_sends_nothing_more() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.put(1)
        await stream.settle()
        stream.put(2)
        stream.outbox.close()
        await asyncio.sleep(1)

        assert stream.sent == [[1]]

    run_virtual(scenario)


@pytest.mark.parametrize(
    ("request_", "slow"),
    [
        (pb.ShardRequest(execute=pb.ExecuteRequest()), False),
        (
            pb.ShardRequest(execute=pb.ExecuteRequest(consistency=pb.CONSISTENCY_EFFECTIVE)),
            True,
        ),
        (pb.ShardRequest(get=pb.GetRequest()), False),
        (pb.ShardRequest(get=pb.GetRequest(min_position=1)), True),
        (pb.ShardRequest(lookup=pb.ShardLookupRequest()), True),
        (pb.ShardRequest(assign=pb.AssignRequest()), True),
    ],
)
def test_requests_that_wait_for_more_than_a_commit_are_slow(
    request_: pb.ShardRequest, slow: bool
) -> None:
    assert is_slow(request_) is slow
