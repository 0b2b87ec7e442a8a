"""Units in flight: looked up or moved, and not answered yet. All lookups of a unit share one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import UsedEpoch

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class Flight:
    """One unit between its first lookup, or its move, and the answer."""

    name: TopicName
    text: str
    future: asyncio.Future[LookupAnswer]
    started_at: float
    attempts: int = 0
    used: UsedEpoch | None = None
    """The epoch that its owner found in its ledger, which keeps the owner from serving the unit."""

    parents: Policies | None = None
    """The policies of namespace and tenant, read since the unit was last planned."""

    refused_by: frozenset[str] = frozenset()
    """Sessions whose broker manager refused the unit for lack of room."""

    may_be_planned: bool = False
    """Whether it may be a segment that the layout does not list yet: for the operation of which it
    is a child."""

    preferred_broker_id: str = ""
    """The broker that it goes to if it needs one and this one may take it; "" for any."""

    opens_at_once: bool = False
    """Whether its broker opens it as soon as it is assigned: its clients are about to come."""

    waits_until: float | None = None
    """Until when the unit waits for capacity; None if it never lacked any."""

    refusal: Rejected | None = None
    """The last rejection of a placement: the answer to requests until there is a broker."""

    def waits_on(self, now: float, wait_ms: int) -> bool:
        """Return whether it may wait for capacity: ``wait_ms`` from the first call on."""
        if self.waits_until is None:
            self.waits_until = now + wait_ms / 1000
        return now < self.waits_until


class Flights:
    """The flights of one shard, by canonical name."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def get(self, text: str) -> asyncio.Future[LookupAnswer] | None:
        """Return the future answer of a unit in flight, None of another unit.

        Wait for it with ``asyncio.wait``, which does not cancel it when the caller is cancelled.
        """
        flight = self._flights.get(text)
        return None if flight is None else flight.future

    def make(self, name: TopicName, started_at: float, *, used: UsedEpoch | None = None) -> Flight:
        """Return a flight that ``get`` does not find before it is registered."""
        future: asyncio.Future[LookupAnswer] = asyncio.get_running_loop().create_future()
        return Flight(name, name.text, future, started_at, used=used)

    def register(self, flights: Iterable[Flight]) -> None:
        """Let later lookups of these units wait for them. The caller must land or fail each."""
        for flight in flights:
            self._flights[flight.text] = flight

    def land(self, flight: Flight, answer: LookupAnswer) -> None:
        """Answer all lookups that wait for ``flight``."""
        self._forget(flight)
        if not flight.future.done():
            flight.future.set_result(answer)

    def fail(self, flights: Iterable[Flight], error: MetadataError) -> None:
        """Fail all lookups that wait for one of ``flights``."""
        for flight in flights:
            self._forget(flight)
            fail_future(flight.future, error)

    def fail_all(self, error: MetadataError) -> None:
        self.fail(tuple(self._flights.values()), error)

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.text) is flight:
            del self._flights[flight.text]


def fail_future(future: asyncio.Future[_T], error: MetadataError) -> None:
    """Fail a future that is not done, whether or not it is awaited."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # Mark it as retrieved, or asyncio logs it.
