"""Producers at the simulated brokers, and what brokers share to keep their messages.

A producer that is connected to a broker is a resident of its process: it needs no network of its
own, as what is asked is whether the *broker* may answer. Brokers keep messages in memory that
outlives them, under the rules of the ledgers on disk (tests/contract/test_ledgers.py).

OnlyOwnersAcknowledge   who acknowledges was assigned the unit, in the epoch of the position
NothingStoredIsLost     what was acknowledged is stored, in one order, for ever
ServedAgain             in the end every topic takes messages where lookups say it is
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from brokers import bootstrap
from brokers.adapters.ledger.memory_ledger import MemoryLedgers, MemoryLedgerStore
from brokers.adapters.pulsar.front import PulsarFront
from brokers.domain.position import Position, epoch_of
from brokers.domain.producing.access import AccessMode
from brokers.domain.refusal import Refusal
from brokers.ports.producer import Publication
from brokers.service.producing.producers import Producer, ProducerRequest
from brokers.service.session.agent import BrokerAgent
from nextgen.kernel.routing.names import parse_topic

CONNECTED_MAX = 12
"""Producers of one broker: few, so that a run stays short, and each is there for long."""

PAUSE_S_MAX = 0.4
PROOF_S_MAX = 5.0
"""For one message to be stored at a broker that is said to serve its topic."""

UnitKey = tuple[str, str]


@dataclass(slots=True)
class Storage:
    """What outlives brokers, and what their clients were told of it."""

    ledgers: MemoryLedgers = field(default_factory=MemoryLedgers)
    acknowledged: dict[UnitKey, dict[Position, bytes]] = field(default_factory=dict)
    answers: int = 0
    sequence_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def store(self, _directory: Path, **_: Any) -> MemoryLedgerStore:
        """Stand in for ``DiskLedgerStore``."""
        return MemoryLedgerStore(self.ledgers)

    def lost(self) -> Iterator[str]:
        """Yield what was acknowledged and is not stored, or not in one order."""
        for key, told in self.acknowledged.items():
            entries = self.ledgers.units[key].entries
            positions = [entry.position for entry in entries]
            if positions != sorted(set(positions)):
                yield f"{key} has its entries in no order: {positions}"
            stored = {entry.position: entry.payload for entry in entries}
            for position, payload in told.items():
                if stored.get(position) != payload:
                    yield f"{position} of {key} was acknowledged and is lost"


@contextmanager
def shared_storage(storage: Storage) -> Iterator[None]:
    """Have all brokers keep their messages in ``storage`` for the time of a run."""
    with patch.object(bootstrap, "DiskLedgerStore", storage.store):
        yield


class Resident:
    """The producers at one broker's process. ``run`` it in that process's name."""

    def __init__(
        self,
        broker_id: str,
        agent: BrokerAgent,
        front: PulsarFront,
        storage: Storage,
        chance: random.Random,
        check: Callable[[UnitKey, str, int, str], None],
    ) -> None:
        self.broker_id = broker_id
        self._agent = agent
        self._topics = front.topics
        self._storage = storage
        self._chance = chance
        self._check = check
        self._connected: dict[str, _Connected] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0, PAUSE_S_MAX))
            held = [each.name for each in self._agent.session.holding.assignments.values()]
            idle = sorted({*held} - {*self._connected})
            if idle and len(self._connected) < CONNECTED_MAX:
                await self._connect(self._chance.choice(idle))
            elif self._connected and self._chance.random() < 0.1:
                # Somebody goes, so that others have their turn and topics become idle.
                self._connected[self._chance.choice(sorted(self._connected))].leave()
            for connected in list(self._connected.values()):
                connected.send()

    async def prove(self, name: str) -> bool:
        """Return whether a message to a topic is acknowledged here, soon."""
        connected = self._connected.get(name) or await self._connect(name)
        if connected is None:
            return False
        stored = connected.send()
        await asyncio.wait((stored,), timeout=PROOF_S_MAX)
        return stored.done() and stored.result()

    async def _connect(self, name: str) -> _Connected | None:
        try:
            topic = await self._topics.open(parse_topic(name), create=False)
            connected = _Connected(self, name, topic)
            request = ProducerRequest(
                0, f"{self.broker_id}-{name}", True, AccessMode.SHARED, None, 0
            )
            connected.producer, _ = await topic.add_producer(request, connected, None, "")
        except Refusal:
            return None
        if connected.is_over:
            return None
        self._connected[name] = connected
        return connected

    def acknowledged(self, topic: Any, payload: bytes, position: Position) -> None:
        key = topic.unit.key
        self._storage.answers += 1
        self._storage.acknowledged.setdefault(key, {})[position] = payload
        self._check(key, topic.unit.name, epoch_of(position.ledger_id), self.broker_id)

    def next_sequence_id(self) -> int:
        return next(self._storage.sequence_ids)

    def gone(self, connected: _Connected) -> None:
        if self._connected.get(connected.name) is connected:
            del self._connected[connected.name]


class _Connected:
    """One producer on one topic, and the connection that it is on."""

    def __init__(self, resident: Resident, name: str, topic: Any) -> None:
        self.name = name
        self.producer: Producer | None = None
        self.is_over = False
        self._resident = resident
        self._topic = topic
        self._waiting: dict[int, asyncio.Future[bool]] = {}

    @property
    def connection(self) -> object:
        return self

    def send(self) -> asyncio.Future[bool]:
        """Send a message; the future says whether it was acknowledged."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.producer is None or self.is_over:
            future.set_result(False)
            return future
        sequence_id = self._resident.next_sequence_id()
        self._waiting[sequence_id] = future
        self.producer.publish(Publication(b"%d" % sequence_id, sequence_id, 0, 1, None))
        return future

    def leave(self) -> None:
        if self.producer is not None:
            self._topic.producers.remove(self.producer)
        self._end()

    def stored(self, publication: Publication, position: Position) -> None:
        self._resident.acknowledged(self._topic, publication.payload, position)
        self._answer(publication, is_stored=True)

    def failed(self, publication: Publication, code: int, message: str) -> None:
        self._answer(publication, is_stored=False)

    def settled(self, publication: Publication) -> None:
        self._answer(publication, is_stored=False)

    def queued(self, name: str) -> None:
        """Nobody asks for a topic of its own."""

    def end(self, broker_url: str) -> None:
        self._end()

    async def is_alive(self) -> bool:
        return not self.is_over

    def _answer(self, publication: Publication, *, is_stored: bool) -> None:
        future = self._waiting.pop(publication.sequence_id, None)
        if future is not None and not future.done():
            future.set_result(is_stored)

    def _end(self) -> None:
        self.is_over = True
        self._resident.gone(self)
        for future in self._waiting.values():
            if not future.done():
                future.set_result(False)
        self._waiting.clear()
