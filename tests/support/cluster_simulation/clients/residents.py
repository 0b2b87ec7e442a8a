"""Clients of the simulated brokers: producers, which also read what the ledger has.

A producer that is connected to a broker is a resident of its process: it needs no network of its
own, as what is checked is whether the *broker* may answer.

OnlyOwnersAcknowledge   a broker acknowledges in epochs in which the unit was assigned to it
ReadAgain               what was acknowledged of a topic is read again wherever it is opened later
ServedAgain             in the end every topic takes messages where lookups say it is
NothingBehindTheEnd     no message is acknowledged that was sent when its topic was known to be
                        deleted or terminated
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from brokers.adapters.pulsar.front import PulsarFront
from brokers.domain.position import Position, epoch_of
from brokers.domain.producing.access import AccessMode
from brokers.domain.refusal import Refusal
from brokers.ports.client_info import ClientInfo
from brokers.ports.ledger import LedgerDamaged
from brokers.ports.producer import Publication
from brokers.service.producing.producers import Producer, ProducerRequest
from brokers.service.session.agent import BrokerAgent
from brokers.service.storage_refusal import STORAGE_ERRORS
from brokers.service.topics.unit import TopicUnit
from nextgen.kernel.routing.names import parse_topic
from tests.support.cluster_simulation.judges.invariants import TENDED_TENANT
from tests.support.cluster_simulation.judges.ledgers import Storage, UnitKey

CONNECTED_MAX = 12
"""Producers of one broker: few, so that a run stays short, and each is there for long."""

PAUSE_S_MAX = 0.4
RETURNS = 0.5
"""The share of producers on tended topics that connect again when they are closed, on demand."""

PROOF_S_MAX = 5.0
"""Time for one message to be stored at the broker that a lookup names."""

READ_MAX = 8
"""Entries that are read when a topic is opened: all of them would be most of what a run costs."""


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
        violate: Callable[[str], None],
    ) -> None:
        self.broker_id = broker_id
        self._agent = agent
        self._topics = front.topics
        self._storage = storage
        self._chance = chance
        self._check = check
        self._violate = violate
        self._connected: dict[str, _Connected] = {}
        self._returning: dict[str, None] = {}
        """Tended topics that were closed to a producer who connects again."""

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
            for name in list(self._returning):
                del self._returning[name]
                await self._connect(name, create=True)
            for connected in list(self._connected.values()):
                connected.send()

    def connected_to(self, topic_id: str) -> list[TopicUnit]:
        """Return the units of a topic that producers are connected to."""
        return [
            each.topic.unit
            for each in self._connected.values()
            if each.topic.unit.topic_id == topic_id and each.producer is not None
        ]

    async def prove(self, name: str) -> bool:
        """Return whether a message to a topic is acknowledged here, soon."""
        connected = self._connected.get(name) or await self._connect(name)
        if connected is None:
            return False
        stored = connected.send()
        await asyncio.wait((stored,), timeout=PROOF_S_MAX)
        return stored.done() and stored.result()

    async def _connect(self, name: str, *, create: bool = False) -> _Connected | None:
        try:
            topic = await self._topics.open(parse_topic(name), create=create)
            connected = _Connected(self, name, topic)
            request = ProducerRequest(
                0, f"{self.broker_id}-{name}", True, AccessMode.SHARED, None, 0
            )
            connected.producer, _ = await topic.add_producer(request, connected, None, "")
        except Refusal:
            return None
        await self._read_again(topic)
        if connected.is_over:
            return None
        self._connected[name] = connected
        return connected

    async def _read_again(self, topic: Any) -> None:
        """ReadAgain, for the newest entries or any others that follow one another.

        Those of later epochs are left out: a later owner may have the topic by now.
        """
        key = topic.unit.key
        acknowledged = self._storage.acknowledged.get(key, {})
        known = sorted(p for p in acknowledged if epoch_of(p.ledger_id) <= topic.unit.epoch)
        if not known:
            return
        is_newest = self._chance.random() < 0.5
        begin = max(0, len(known) - READ_MAX) if is_newest else self._chance.randrange(len(known))
        wanted = {position: acknowledged[position] for position in known[begin : begin + READ_MAX]}
        try:
            found = await _read(topic.ledger, list(wanted))
        except LedgerDamaged as error:
            if not self._storage.is_damaged(topic.unit.topic_id):
                self._violate(f"{self.broker_id} cannot read what was acknowledged: {error}")
            return
        except STORAGE_ERRORS:
            return
        self._storage.read_again += len(found)
        for position, payload in wanted.items():
            if found.get(position) != payload and not self._storage.may_be_missing(
                key, position, is_reported=False
            ):
                self._violate(
                    f"{position} of {key} was acknowledged, {self.broker_id} has "
                    f"{found.get(position)} there in epoch {topic.unit.epoch}"
                )

    def now(self) -> float:
        return self._storage.now()

    def acknowledged(self, topic: Any, payload: bytes, position: Position, sent_at: float) -> None:
        key = topic.unit.key
        ends = (self._storage.deleted.get(key[0]), self._storage.terminated.get(key))
        if any(end is not None and end < sent_at for end in ends):
            self._violate(f"{self.broker_id} acknowledges behind the end of {topic.unit.name}")
        self._storage.answers += 1
        self._storage.acknowledged.setdefault(key, {})[position] = payload
        self._check(key, topic.unit.name, epoch_of(position.ledger_id), self.broker_id)

    def next_sequence_id(self) -> int:
        return next(self._storage.sequence_ids)

    def closed(self, name: str) -> None:
        """A broker has closed a producer, who may want to go on."""
        is_tended = f"//{TENDED_TENANT}/" in name and "-partition-" not in name
        if is_tended and self._chance.random() < RETURNS:
            self._returning[name] = None

    def gone(self, connected: _Connected) -> None:
        if self._connected.get(connected.name) is connected:
            del self._connected[connected.name]


async def _read(ledger: Any, wanted: list[Position]) -> dict[Position, bytes]:
    """Return the payloads of what a ledger has from the first position to the last."""
    found: dict[Position, bytes] = {}
    after = Position(wanted[0].ledger_id, wanted[0].entry_id - 1)
    while after < wanted[-1]:
        entries = await ledger.read(after, entries_max=READ_MAX, bytes_max=2**20)
        if not entries:
            break
        found.update((entry.position, bytes(entry.payload)) for entry in entries)
        after = entries[-1].position
    return found


class _Connected:
    """One producer on one topic, and the connection that it is on."""

    def __init__(self, resident: Resident, name: str, topic: Any) -> None:
        self.name = name
        self.producer: Producer | None = None
        self.is_over = False
        self._resident = resident
        self.topic = topic
        self._waiting: dict[int, asyncio.Future[bool]] = {}
        self._sent_at: dict[int, float] = {}

    @property
    def connection(self) -> object:
        return self

    @property
    def client(self) -> ClientInfo:
        return ClientInfo("resident", "")

    def send(self) -> asyncio.Future[bool]:
        """Send a message; the future resolves to whether it was acknowledged."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.producer is None or self.is_over:
            future.set_result(False)
            return future
        sequence_id = self._resident.next_sequence_id()
        self._waiting[sequence_id] = future
        self._sent_at[sequence_id] = self._resident.now()
        self.producer.publish(Publication(b"%d" % sequence_id, sequence_id, 0, 1, None))
        return future

    def leave(self) -> None:
        if self.producer is not None:
            self.topic.producers.remove(self.producer)
        self._end()

    def stored(self, publication: Publication, position: Position) -> None:
        sent_at = self._sent_at.pop(publication.sequence_id)
        self._resident.acknowledged(self.topic, publication.payload, position, sent_at)
        self._answer(publication, is_stored=True)

    def failed(self, publication: Publication, code: int, message: str) -> None:
        self._answer(publication, is_stored=False)

    def settled(self, publication: Publication) -> None:
        self._answer(publication, is_stored=False)

    def queued(self, name: str) -> None:
        """Not called: no resident requests a topic of its own."""

    def end(self, broker_url: str) -> None:
        self._end()
        self._resident.closed(self.name)

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
