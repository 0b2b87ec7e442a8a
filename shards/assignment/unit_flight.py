"""Units on their way to a broker, each with one flight that everybody who asks for it shares."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import Rejected
from nextgen.kernel.governance.policies import Policies
from nextgen.kernel.routing.names import TopicName
from protos.nextgen.v1.inventory_pb2 import LookupAnswer
from protos.nextgen.v1.shard_service_pb2 import UsedEpoch


@dataclass(slots=True, eq=False)
class Flight:
    """One unit between the first who asked for it and the answer."""

    name: TopicName
    text: str
    future: asyncio.Future[LookupAnswer]
    started_at: float
    attempts: int = 0
    used: UsedEpoch | None = None
    """What its owner found in its ledger, which keeps it from serving the unit."""

    parents: Policies | None = None
    """What namespace and tenant say, read since it was last planned."""

    refused_by: frozenset[str] = frozenset()
    """Sessions whose broker manager refused the unit for lack of room."""

    waits_until: float | None = None
    """Until when it waits for capacity; None: it never lacked any."""

    refusal: Rejected | None = None
    """Why it has no broker yet."""

    def waits_on(self, now: float, wait_ms: int) -> bool:
        """Return whether it may wait for capacity, ``wait_ms`` from the first time it asks."""
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
        """Return the answer that a unit is waited for with, None if it is not on its way.

        Wait with ``asyncio.wait``: whoever goes away must not cancel what others wait for.
        """
        flight = self._flights.get(text)
        return None if flight is None else flight.future

    def make(self, name: TopicName, started_at: float, *, used: UsedEpoch | None = None) -> Flight:
        """Return a flight that nobody can find before it is registered."""
        future: asyncio.Future[LookupAnswer] = asyncio.get_running_loop().create_future()
        return Flight(name, name.text, future, started_at, used=used)

    def register(self, flights: Iterable[Flight]) -> None:
        """Let everybody who asks for these units wait for them. Each must land or fail."""
        for flight in flights:
            self._flights[flight.text] = flight

    def land(self, flight: Flight, answer: LookupAnswer) -> None:
        """Answer everybody who waits."""
        self._forget(flight)
        if not flight.future.done():
            flight.future.set_result(answer)

    def fail(self, flights: Iterable[Flight], error: MetadataError) -> None:
        """Fail everybody who waits for one of ``flights``."""
        for flight in flights:
            self._forget(flight)
            if not flight.future.done():
                flight.future.set_exception(error)
                flight.future.exception()  # Looked at, should everybody who waited be gone.

    def fail_all(self, error: MetadataError) -> None:
        self.fail(tuple(self._flights.values()), error)

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.text) is flight:
            del self._flights[flight.text]
