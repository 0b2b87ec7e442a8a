"""The producers of one topic: their names, their access, and how they leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from brokers.domain.producing.access import AccessMode, AccessRequest, Granted, Left, ProducerAccess
from brokers.domain.refusal import Refusal, ServerError
from brokers.ports.ledger import TopicLedger
from brokers.ports.producer import ProducerSink, Publication
from brokers.service.client_limits.broker_clients import Claim
from brokers.service.client_limits.topic_limits import TopicClientLimits
from brokers.service.producing.publishing import NameState, Publishing
from brokers.service.storage_refusal import STORAGE_ERRORS, storage_refusal
from brokers.service.traffic import Rate
from nextgen.kernel.limits.pulsar import PRODUCERS_PER_TOPIC_MAX, SEQUENCE_IDS_SKIPPED

TOPIC_EPOCH_KEY = "topic-epoch"
"""Key of the topic's epoch in the ledger's state: 8 bytes, big-endian."""

NameMaker = Callable[[], str]
"""Makes names that are unique in the cluster."""


@dataclass(frozen=True, slots=True)
class ProducerRequest:
    """The content of a PRODUCER command, except the schema."""

    producer_id: int
    name: str
    """The producer's name. Empty: the broker makes one."""
    is_name_generated: bool
    """Whether a broker made the name at an earlier attempt, so that no other producer has it."""
    mode: AccessMode
    topic_epoch: int | None
    """The former epoch of an exclusive producer that reconnects."""
    epoch: int
    """Number of the producer's attempt to connect."""
    is_managed: bool = False
    """Whether it is a part of a producer that follows the layout of a scalable topic."""


class Producer:
    """One producer on one connection. Made by ``Producers.add``."""

    __slots__ = (
        "_publishing",
        "claim",
        "connected_since_ms",
        "is_gone",
        "last_sequence_id",
        "name",
        "rate",
        "request",
        "sink",
        "state",
        "topic_epoch",
        "turn",
    )

    def __init__(
        self,
        name: str,
        request: ProducerRequest,
        sink: ProducerSink,
        publishing: Publishing,
        claim: Claim,
    ) -> None:
        self.name = name
        self.request = request
        self.sink = sink
        self.state: NameState = publishing.claim_name(name)
        self.topic_epoch: int | None = None
        self.last_sequence_id = -1
        """The producer's next message must have a higher sequence id: this is the last stored one
        of its name, or a later one."""
        self.turn: asyncio.Future[Granted] | None = None
        """Set while the producer waits for exclusive access."""
        self.is_gone = False
        self.connected_since_ms = publishing.now_ms()
        self.rate = Rate()
        self.claim = claim
        """What it takes of the numbers of producers that may be."""
        self._publishing = publishing

    def __repr__(self) -> str:
        return f"<Producer {self.name} {self.request.mode.name} {self.state.sequence!r}>"

    def publish(self, publication: Publication) -> None:
        self._publishing.publish(self.name, self.state, self.sink, publication)


class Producers:
    """All producers of one topic, connected or waiting."""

    def __init__(
        self,
        topic_name: str,
        ledger: TopicLedger,
        publishing: Publishing,
        make_name: NameMaker,
        limits: TopicClientLimits,
    ) -> None:
        self._topic_name = topic_name
        self._ledger = ledger
        self._publishing = publishing
        self._make_name = make_name
        self._limits = limits
        self._by_name: dict[str, Producer] = {}
        self._is_ended = False
        stored = ledger.state.get(TOPIC_EPOCH_KEY)
        self._access = ProducerAccess(None if stored is None else int.from_bytes(stored, "big"))

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._by_name.values())

    async def add(self, request: ProducerRequest, sink: ProducerSink) -> Producer:
        """Add a producer; wait for its turn if its access mode requires it.

        Raises:
            Refusal: The producer may not have access.
        """
        name = request.name or self._make_name()
        await self._free(name, request, sink)
        if self._is_ended:
            raise self._elsewhere()
        if len(self._by_name) >= PRODUCERS_PER_TOPIC_MAX:
            raise Refusal(
                ServerError.PRODUCER_BUSY,
                f"topic {self._topic_name} has {len(self._by_name)} producers, "
                f"at most {PRODUCERS_PER_TOPIC_MAX} may be",
            )
        claim = self._limits.claim_producer(len(self._by_name), sink.client)
        producer = Producer(name, request, sink, self._publishing, claim)
        self._by_name[name] = producer
        try:
            await self._let_in(producer)
        except STORAGE_ERRORS as error:
            self.remove(producer)
            raise storage_refusal(error, self._topic_name) from error
        except BaseException:
            self.remove(producer)
            raise
        return producer

    def remove(self, producer: Producer) -> None:
        """Remove a producer in any state. A repetition changes nothing."""
        if producer.is_gone:
            return
        producer.is_gone = True
        producer.claim.release()
        if self._by_name.get(producer.name) is producer:
            del self._by_name[producer.name]
        self._publishing.release_name(producer.name)
        self._take_turns(self._access.leave(producer))

    def send_away(self) -> None:
        """Close all producers from the broker's side. They reconnect, and may be refused then."""
        for producer in list(self._by_name.values()):
            self._end(producer, "")

    def end_all(self, broker_url: str) -> None:
        """Close all producers from the broker's side, and refuse new ones."""
        self._is_ended = True
        for producer in list(self._by_name.values()):
            self._end(producer, broker_url)

    async def _let_in(self, producer: Producer) -> None:
        request = producer.request
        granted = self._access.ask(
            AccessRequest(producer, producer.name, request.mode, request.topic_epoch)
        )
        if granted is None:
            producer.turn = asyncio.get_running_loop().create_future()
            producer.sink.queued(producer.name)
            try:
                granted = await producer.turn
            finally:
                # Break a reference cycle: the error refers to this frame, and it to the producer.
                producer.turn = None
        for other in granted.ended:
            assert isinstance(other, Producer)
            self._fence(other)
        producer.topic_epoch = granted.topic_epoch
        if granted.is_new_epoch and granted.topic_epoch is not None:
            stored = granted.topic_epoch.to_bytes(8, "big")
            await asyncio.shield(self._ledger.put_state(TOPIC_EPOCH_KEY, stored))
        producer.last_sequence_id = await self._publishing.settle(producer.state)
        if request.is_name_generated:
            # Stock C++ clients without a receipt continue their sequence ids from this value, but
            # their pending messages have the next ids already. Skip ids, so that no new message
            # looks like a duplicate of a pending one.
            producer.last_sequence_id += SEQUENCE_IDS_SKIPPED
        if producer.is_gone:
            raise self._elsewhere()

    async def _free(self, name: str, request: ProducerRequest, sink: ProducerSink) -> None:
        """Return when no connected producer has the name.

        Raises:
            Refusal: A producer whose client is alive has the name.
        """
        while (holder := self._by_name.get(name)) is not None:
            if _is_successor(request, sink, holder):
                self._end(holder, "")
            elif holder.sink.connection is sink.connection or await holder.sink.is_alive():
                raise Refusal(
                    ServerError.PRODUCER_BUSY,
                    f"producer {name} is connected to topic {self._topic_name} already",
                )
            else:
                self.remove(holder)

    def _take_turns(self, left: Left) -> None:
        for other in left.fenced:
            assert isinstance(other, Producer)
            self._fence(other)
        if left.granted is not None:
            chosen = left.granted.request.key
            assert isinstance(chosen, Producer)
            assert chosen.turn is not None, "a waiting producer has a turn"
            if not chosen.turn.done():
                chosen.turn.set_result(left.granted)

    def _fence(self, producer: Producer) -> None:
        if producer.turn is not None and not producer.turn.done():
            producer.turn.set_exception(
                Refusal(
                    ServerError.PRODUCER_FENCED,
                    f"another producer has exclusive access to topic {self._topic_name}",
                )
            )
        else:
            self._end(producer, "")

    def _end(self, producer: Producer, broker_url: str) -> None:
        if producer.turn is not None and not producer.turn.done():
            producer.turn.set_exception(self._elsewhere())
            return
        producer.sink.end(broker_url)
        self.remove(producer)

    def _elsewhere(self) -> Refusal:
        return Refusal(
            ServerError.SERVICE_NOT_READY,
            f"topic {self._topic_name} moves to another broker: look it up again",
        )


def _is_successor(request: ProducerRequest, sink: ProducerSink, holder: Producer) -> bool:
    """Whether the request is a later attempt of the same producer to connect."""
    if request.epoch <= holder.request.epoch:
        return False
    is_same = sink.connection is holder.sink.connection and (
        request.producer_id == holder.request.producer_id
    )
    return is_same or request.is_name_generated
