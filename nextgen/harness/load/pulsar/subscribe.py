"""The job that receives all messages with stock consumers, one on each topic, and counts them.

Shadows of some topics have consumers and an account of their own: each message of the source has to
arrive there too, under the same id.

    hears   {"expect": {"acknowledged": [ranges of each lane], "interruptions": [[t, t], ...]}}
            then it waits until all of it arrived, or nothing came for ``QUIET_MS``, and returns
    tells   {"event": "subscribed"}, {"tick": {...}}

``interruptions`` say when brokers were killed or topics moved, see ``delivery_record``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from nextgen.harness.load.pulsar.delivery_record import (
    EXAMPLES_MAX,
    DeliveryRecord,
    Interruption,
)
from nextgen.harness.load.pulsar.message_stamp import stamp_of
from nextgen.harness.load.pulsar.stock_client import load_pulsar, open_client
from nextgen.harness.load.reporter import Reporter
from nextgen.kernel.errors import Unavailable

TICK_INTERVAL_MS = 250
QUIET_MS = 10_000
"""After this long without a message, missing messages count as lost."""

TRAILING_MS = 1_500
"""Time after the last missing message in which duplicates would arrive."""


class _Account:
    """The record, and the lock for the client's threads."""

    def __init__(self) -> None:
        self.record = DeliveryRecord()
        self.last_arrival_s = time.monotonic()
        self.lock = threading.Lock()
        self.failures = 0

    def listen(self, consumer: Any, message: Any) -> None:
        """Record a message and acknowledge it, on a thread of the client."""
        now = time.monotonic()
        identity = message.message_id()
        with self.lock:
            self.last_arrival_s = now
            try:
                lane, number = stamp_of(message.data())
            except ValueError as error:
                self.record.arrive_unknown(str(error))
            else:
                place = (
                    identity.ledger_id(),
                    identity.entry_id(),
                    identity.partition(),
                    identity.batch_index(),
                )
                self.record.arrive(lane, number, place, now)
        try:
            consumer.acknowledge(message)
        except load_pulsar().PulsarException:
            # It will be redelivered, and recorded as such.
            self.failures += 1


async def subscribe(job: dict[str, Any], reporter: Reporter) -> dict[str, Any]:
    """Consume ``topics``, and ``shadows`` of lanes, until the command with the expected messages.

    Returns missing and extra ones, of both together; ``received`` is without shadows.
    """
    pulsar = load_pulsar()
    account, at_shadows = _Account(), _Account()
    shadows: dict[str, int] = job["shadows"]
    client = open_client(job["service_url"], log_path=job["log_path"])
    telling = asyncio.create_task(_tell(account, reporter))
    try:
        await asyncio.to_thread(_open_consumers, client, job["topics"], account)
        await asyncio.to_thread(_open_consumers, client, list(shadows), at_shadows)
        reporter.send({"event": "subscribed"})
        expected = (await reporter.commands.get())["expect"]
        acknowledged = dict(enumerate(expected["acknowledged"]))
        missing = await _wait_for(account, acknowledged)
        of_shadows = {lane: acknowledged[lane] for lane in shadows.values()}
        missing_there = await _wait_for(at_shadows, of_shadows)
    except pulsar.PulsarException as error:
        raise Unavailable(f"the stock client gave up: {error!r}") from error
    finally:
        telling.cancel()
        await asyncio.to_thread(client.shutdown)
    interruptions = [(begin, end) for begin, end in expected["interruptions"]]
    result = _outcome(account, missing, interruptions)
    there = _outcome(at_shadows, missing_there, interruptions, "at a shadow, ")
    return {
        **{name: count + there[name] for name, count in result.items()},
        "received": account.record.arrived,
        "received_at_shadows": at_shadows.record.arrived,
        "other_ids": at_shadows.record.ids_other_than(account.record),
    }


def _outcome(
    account: _Account,
    missing: list[tuple[int, int]],
    interruptions: list[Interruption],
    where: str = "",
) -> dict[str, Any]:
    record = account.record
    duplicated = record.duplicated(interruptions)
    return {
        "lost": len(missing),
        "duplicated": record.stored_twice + len(duplicated),
        "out_of_order": record.out_of_order,
        "unknown": record.unknown,
        "redelivered": len(record.again) - len(duplicated),
        "failed_acknowledgements": account.failures,
        "examples": [
            f"{where}{example}"
            for example in (
                *record.examples,
                *duplicated[:EXAMPLES_MAX],
                *[f"lane {lane}: {number} never came" for lane, number in missing[:EXAMPLES_MAX]],
            )
        ],
    }


def _open_consumers(client: Any, topics: list[str], account: _Account) -> None:
    pulsar = load_pulsar()
    for topic in topics:
        client.subscribe(
            topic,
            "kill-test",
            consumer_type=pulsar.ConsumerType.Exclusive,
            initial_position=pulsar.InitialPosition.Earliest,
            message_listener=account.listen,
        )


async def _wait_for(
    account: _Account, acknowledged: dict[int, list[list[int]]]
) -> list[tuple[int, int]]:
    """Return the missing messages, once none is missing or no more arrive."""
    while True:
        with account.lock:
            missing = account.record.missing(acknowledged)
            quiet_ms = (time.monotonic() - account.last_arrival_s) * 1000
        if quiet_ms >= (QUIET_MS if missing else TRAILING_MS):
            return missing
        await asyncio.sleep(0.2)


async def _tell(account: _Account, reporter: Reporter) -> None:
    while True:
        await asyncio.sleep(TICK_INTERVAL_MS / 1000)
        record = account.record
        reporter.send(
            {
                "tick": {
                    "received": record.arrived,
                    "out_of_order": record.out_of_order,
                    "stored_twice": record.stored_twice,
                    "redelivered": len(record.again),
                }
            }
        )
