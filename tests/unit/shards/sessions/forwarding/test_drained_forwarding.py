"""Reports of drained units reach the shards of their topics, however long that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from nextgen.kernel.errors import (
    InvalidRequest,
    MetadataError,
    Overloaded,
    SessionExpired,
    Unavailable,
)
from nextgen.kernel.limits.pulsar import SUBSCRIPTION_NAME_BYTES_MAX
from nextgen.kernel.limits.scalable import DRAINED_UNITS_PER_MESSAGE_MAX
from protos.nextgen.v1.broker_service_pb2 import DrainedUnit, DrainedUnits, ManagerMessage
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.shard_service_pb2 import (
    DrainedMark,
    MarkDrainedRequest,
    MarkDrainedResponse,
)
from shards.sessions.forwarding import drained_forwarding
from shards.sessions.forwarding.drained_forwarding import DrainedForwarding
from tests.support.scenarios import run_by
from tests.support.simulated.virtual_time import run_virtual

RECORD = BrokerRecorded(broker_id="b-1", session_id="s-1")
SHARDS = 3


class Shards:
    """The shards of all topics: what they were sent, and what they answer."""

    def __init__(self) -> None:
        self.on_drained: Callable[[BrokerRecorded, DrainedUnits], None] = lambda *_: None
        self.requests: list[tuple[int, list[DrainedMark]]] = []
        self.error: MetadataError | None = None
        self.is_live = self.is_connected = True
        self.settled: list[str] = []
        """The units whose reports were confirmed to the broker."""
        self.unreachable: set[int] = set()
        self.unsettled: set[str] = set()
        """Names of units whose seals are not recorded yet."""
        unused: Any = self
        self.forwarding = DrainedForwarding(7, unused, self, unused)

    def live(self, broker_id: str, session_id: str) -> Any:
        """As the sessions: the broker's one, or none."""
        assert (broker_id, session_id) == ("b-1", "s-1")
        if not self.is_live:
            raise SessionExpired("s-1 has ended")
        return SimpleNamespace(connection=self if self.is_connected else None)

    def answer(self, message: ManagerMessage) -> None:
        """As the broker's connection."""
        self.settled += [unit.name for unit in message.drained_settled.units]

    def home_of(self, _kind: int, name: str, _object_id: str = "") -> int:
        if self.error is not None:
            raise self.error
        return int(name[-1]) % SHARDS

    async def mark_drained(
        self, shard_id: int, request: MarkDrainedRequest, *, timeout_ms: int
    ) -> MarkDrainedResponse:
        await asyncio.sleep(0.001)
        self.requests.append((shard_id, list(request.marks)))
        if shard_id in self.unreachable:
            raise Unavailable("no leader")
        return MarkDrainedResponse(
            settled=[mark.unit.name not in self.unsettled for mark in request.marks]
        )

    def say(self, *units: DrainedUnit) -> None:
        self.on_drained(RECORD, DrainedUnits(units=units))

    def names(self) -> list[str]:
        """Return the units that were forwarded, each as often as it was; forget them."""
        found = [mark.unit.name for _, marks in self.requests for mark in marks]
        self.requests.clear()
        return found


def unit(topic: int = 0, segment: int = 0, *, epoch: int = 1, name: str = "sub") -> DrainedUnit:
    return DrainedUnit(
        topic_id=f"id-{topic}",
        unit=f"s{segment}",
        name=f"segment://t/n/x{topic}/0000-ffff-{segment}",
        epoch=epoch,
        subscription=name,
    )


@run_by(run_virtual)
async def test_each_report_reaches_its_home_shard_with_its_broker() -> None:
    shards = Shards()

    shards.say(unit(0), unit(1), unit(3))
    await asyncio.sleep(0.1)

    assert {shard: len(marks) for shard, marks in shards.requests} == {0: 2, 1: 1}
    (mark,) = next(marks for shard, marks in shards.requests if shard == 1)
    assert mark.subscription == "sub"
    assert (mark.unit.topic_id, mark.unit.unit, mark.unit.epoch) == ("id-1", "s0", 1)
    assert (mark.unit.broker_id, mark.unit.session_id) == ("b-1", "s-1")
    shards.names()
    await asyncio.sleep(60)
    assert shards.names() == [], "a settled report is not repeated"
    assert sorted(shards.settled) == sorted([unit(0).name, unit(1).name, unit(3).name])


@run_by(run_virtual)
async def test_a_shard_that_cannot_be_reached_is_asked_again_and_holds_up_no_other() -> None:
    shards = Shards()
    shards.unreachable = {1}

    shards.say(unit(0), unit(1))
    await asyncio.sleep(5)
    assert shards.names().count(unit(0).name) == 1
    assert shards.settled == [unit(0).name]
    shards.unreachable = set()
    await asyncio.sleep(11)

    assert shards.names() == [unit(1).name]


@run_by(run_virtual)
async def test_a_segment_whose_seal_is_not_recorded_yet_is_reported_until_it_is() -> None:
    shards = Shards()
    shards.unsettled = {unit(0).name}

    shards.say(unit(0))
    await asyncio.sleep(0.1)
    assert len(shards.names()) > 1
    shards.unsettled = set()
    await asyncio.sleep(0.2)

    assert len(shards.names()) == 1
    await asyncio.sleep(60)
    assert shards.names() == []


@run_by(run_virtual)
async def test_attempts_in_vain_become_rare() -> None:
    shards = Shards()
    shards.unsettled = {unit(0).name}
    shards.say(unit(0))
    await asyncio.sleep(60)
    shards.names()

    await asyncio.sleep(60)

    assert len(shards.names()) in (5, 6)


@run_by(run_virtual)
async def test_a_home_that_is_not_known_yet_is_looked_for_again() -> None:
    shards = Shards()
    shards.error = Unavailable("no shard map")
    shards.say(unit(0))
    await asyncio.sleep(1)
    assert shards.names() == []

    shards.error = None
    await asyncio.sleep(2)

    assert shards.names() == [unit(0).name]


@run_by(run_virtual)
async def test_a_repeated_report_is_forwarded_again_and_settled_once() -> None:
    shards = Shards()
    shards.say(unit())
    await asyncio.sleep(0.000_5)

    shards.say(unit())
    await asyncio.sleep(1)

    assert shards.names() == [unit().name] * 2
    assert shards.settled == [unit().name]


@run_by(run_virtual)
async def test_reports_of_two_epochs_are_both_settled() -> None:
    shards = Shards()

    shards.say(unit(epoch=1), unit(epoch=2))
    await asyncio.sleep(1)

    assert shards.settled == [unit().name] * 2


@pytest.mark.parametrize("what", ["is_live", "is_connected"])
@run_by(run_virtual)
async def test_a_broker_that_is_away_is_not_answered(*, what: str) -> None:
    shards = Shards()
    setattr(shards, what, False)

    shards.say(unit())
    await asyncio.sleep(60)

    assert shards.names() == [unit().name]
    assert shards.settled == []


@run_by(run_virtual)
async def test_what_is_not_settled_does_not_hold_up_what_waits_behind_it() -> None:
    shards = Shards()
    stuck = [unit(0, number) for number in range(DRAINED_UNITS_PER_MESSAGE_MAX)]
    shards.unsettled = {each.name for each in stuck}
    shards.say(*stuck)

    shards.say(unit(1))
    await asyncio.sleep(1)

    assert shards.names().count(unit(1).name) == 1


@run_by(run_virtual)
async def test_drained_units_per_message_max_are_taken_and_one_more_refused() -> None:
    shards = Shards()
    most = [unit(0, number) for number in range(DRAINED_UNITS_PER_MESSAGE_MAX)]

    with pytest.raises(InvalidRequest, match="drained units in one message"):
        shards.say(*most, unit(1))
    shards.say(*most)
    await asyncio.sleep(1)

    assert len(shards.names()) == DRAINED_UNITS_PER_MESSAGE_MAX


@run_by(run_virtual)
async def test_drained_units_waiting_max_wait_and_one_more_ends_the_connection(
    *,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drained_forwarding, "DRAINED_UNITS_WAITING_MAX", 3)
    shards = Shards()
    shards.unreachable = {0}
    shards.say(unit(0, 1), unit(0, 2), unit(0, 3))

    with pytest.raises(Overloaded):
        shards.say(unit(0, 4))
    shards.say(unit(0, 3))

    assert repr(shards.forwarding).endswith("waiting=3>")


@pytest.mark.parametrize(
    "wrong",
    [
        DrainedUnit(name="segment://t/n/x/0-1", subscription="sub"),
        DrainedUnit(name=unit().name),
        unit(name="s" * (SUBSCRIPTION_NAME_BYTES_MAX + 1)),
    ],
)
@run_by(run_virtual)
async def test_a_report_with_a_name_that_is_none_is_refused(*, wrong: DrainedUnit) -> None:
    shards = Shards()

    with pytest.raises(InvalidRequest):
        shards.say(wrong)
    shards.say(unit(name="s" * SUBSCRIPTION_NAME_BYTES_MAX))


@run_by(run_virtual)
async def test_the_end_of_the_term_ends_what_waits() -> None:
    shards = Shards()
    shards.unreachable = {0}
    shards.say(unit(0))
    await asyncio.sleep(1)
    shards.names()

    shards.forwarding.close()
    await asyncio.sleep(60)

    assert shards.names() == []
