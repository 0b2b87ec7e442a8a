"""Brokers and their Pulsar clients in one process: no sockets, no disk, storage with moods.

    world = BrokerWorld()
    client = world.broker("a").client()
    ready = await client.producer(TOPIC)

The brokers share what is stored, as processes share a ledger directory; ``world.directory``
stands for the shards.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from brokers.adapters.ledger.memory_ledger import MemoryLedgers
from brokers.adapters.pulsar.connection import BrokerConnection
from brokers.adapters.pulsar.front import Identity, PulsarFront
from brokers.domain.former_names import OldName
from brokers.domain.holding import Assignment, Payload, Release, TopicMetadata
from brokers.domain.session import Delivered, Delivery, Established
from brokers.domain.storage_policy import StoragePolicy
from brokers.ports.session import DrainedUnit
from brokers.ports.shadows import ShadowLedgers
from brokers.service.session.agent import BrokerAgent
from nextgen.kernel.errors import MetadataError, Refused
from nextgen.kernel.events.decider import RejectionCode
from nextgen.kernel.governance.client_limits import NO_BROKER_LIMITS
from nextgen.kernel.limits.pulsar import VOLATILE_BYTES_MAX
from nextgen.kernel.routing.ids import ID_DIGITS
from nextgen.kernel.routing.names import TopicName, parse_topic
from nextgen.pulsar.frames import (
    FIELD_OF_TYPE,
    FrameReader,
    encode_command,
    encode_frame,
    parse_command,
)
from nextgen.pulsar.keep_alive import KeepAlive
from nextgen.pulsar.metadata_commands import Located, StoredSchema
from nextgen.pulsar.payload import message_payload
from nextgen.pulsar.topic_lists.listed import ListedTopics
from nextgen.pulsar.topic_lists.ports import ListQuestion, TopicList
from nextgen.pulsar.topic_lists.settings import DEFAULT_TOPIC_LISTS
from protos.pulsar import PulsarApi_pb2 as pulsar
from tests.support.brokers.moody_ledger import MoodyLedger, MoodyStore
from tests.support.pulsar.fake_layouts import FakeLayouts
from tests.support.pulsar.fake_topic_lists import FakeTopicLists
from tests.support.pulsar.transport import MemoryTransport

TOPIC = "persistent://public/default/orders"
TURNS_MAX = 500
"""Turns of the loop within which everything that can happen has happened."""

POLICY = StoragePolicy(retention_ms=3_600_000, retention_bytes=2**30, backlog_bytes_max=2**30)


@dataclass(frozen=True)
class Renamed:
    """Of a renamed topic: the id that it keeps, and the names that it had."""

    topic_id: str
    former_names: tuple[OldName, ...]


class FakeDirectory:
    """The calls that a broker makes to the shards."""

    def __init__(self, world: BrokerWorld) -> None:
        self._world = world
        self.error: MetadataError | None = None
        self.allows_creation = True
        self.released = asyncio.Event()
        self.released.set()
        self.topics: set[str] = set()
        self.asked: list[str] = []
        self.raised: list[tuple[str, int, int]] = []
        """The requests for higher epochs: name, the owner's epoch, the epoch of its ledger."""
        self.owners: dict[str, tuple[str, int]] = {}
        self.assigns_to = ""
        """Who gets idle topics; empty: the first broker."""
        self.renamed: dict[str, Renamed] = {}
        """The renamed topics, by their present names."""

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        self._check(name, create=create)
        return 0

    def id_of(self, base_text: str) -> str:
        """Return the id of a topic given by its present name."""
        renamed = self.renamed.get(base_text)
        return topic_id_of(base_text) if renamed is None else renamed.topic_id

    def present(self, name: TopicName) -> TopicName:
        """Return the present name of a unit given by a former one in its grace."""
        for current, topic in self.renamed.items():
            for former in topic.former_names:
                if former.name == name.base_text and self._world.clock() < former.until_ms:
                    present = parse_topic(current)
                    return (
                        present if name.partition is None else present.of_partition(name.partition)
                    )
        return name

    async def locate(self, name: TopicName, *, create: bool) -> Located:
        self.asked.append(name.text)
        await asyncio.sleep(0)
        await self.released.wait()
        asked, name = name, self.present(name)
        self._check(name, create=create)
        if not self.owners.get(name.text, ("", 0))[0]:
            broker_id = self.assigns_to or next(iter(self._world.brokers))
            self._world.assign(name.text, broker_id)
        broker_id, epoch = self.owners[name.text]
        broker = self._world.brokers[broker_id]
        return Located(
            name=asked.text,
            broker_id=broker_id,
            session_id=broker.agent.session.session_id,
            broker_url=broker.url,
            topic_id=self.id_of(name.base_text),
            unit=name.unit.text,
            epoch=epoch,
        )

    async def raise_epoch(
        self, name: TopicName, *, topic_id: str, epoch: int, used_epoch: int
    ) -> Located:
        self.raised.append((name.text, epoch, used_epoch))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        assert topic_id == self.id_of(name.base_text)
        broker_id, present = self.owners[name.text]
        if present == epoch:
            self._world.assign(name.text, broker_id, used_epoch=used_epoch)
        return await self.locate(name, create=False)

    def any_broker_url(self, topic: str) -> str | None:
        return next(iter(self._world.brokers.values())).url

    async def topics_of_namespace(self, question: ListQuestion) -> list[str]:
        await self.released.wait()
        pattern = question.pattern
        return sorted(name for name in self.topics if pattern is None or pattern.matches(name))

    async def schema(self, name: TopicName, version: bytes | None) -> StoredSchema | None:
        return None

    def _check(self, name: TopicName, *, create: bool) -> None:
        if self.error is not None:
            raise self.error
        if name.text not in self.topics:
            if not create or not self.allows_creation:
                raise Refused(RejectionCode.NOT_FOUND, f"{name.text} does not exist")
            self.topics.add(name.text)


def topic_id_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:ID_DIGITS]


class FakeBroker:
    """A broker without its process: an agent that is fed by hand, and the Pulsar front."""

    def __init__(self, world: BrokerWorld, broker_id: str) -> None:
        self.world = world
        self.broker_id = broker_id
        self.url = f"pulsar://{broker_id}:6650"
        self.now_ms = 0
        self.store = MoodyStore(world.disk, now_ms=world.clock)
        self.volatile = MoodyStore(
            MemoryLedgers(), bytes_max=VOLATILE_BYTES_MAX, now_ms=world.clock
        )
        self.drained: list[DrainedUnit] = []
        """The drained units that were reported."""
        unused: Any = None
        self.agent = BrokerAgent(
            dialer=unused, locator=unused, load_meter=unused, clock=lambda: self.now_ms
        )
        self.front = PulsarFront(
            identity=Identity(broker_id, self.url),
            session=lambda: self.agent.session,
            directory=world.directory,
            persistent=self.store,
            volatile=self.volatile,
            policy=world.policy,
            clock=lambda: self.now_ms,
            wall_clock=world.clock,
            lists=world.topic_lists,
            topic_lists=world.topic_list_settings,
            report_drained=self.drained.extend,
            layouts=world.layouts,
            shadows=world.shadows_of(broker_id),
            broker_limits=lambda: world.broker_limits,
        )
        self.topics = self.front.topics
        self.agent.listener = self.topics
        self._sequence = 0
        self._sessions = 0
        self.keep_alive = KeepAlive()
        self.begin_session()

    def begin_session(self) -> None:
        """The manager gives a session that holds nothing; an earlier one is void."""
        self._sessions += 1
        self._sequence = 0
        self._take(Established(f"{self.broker_id}-{self._sessions}", self._sessions, False, 1))

    def deliver(self, payload: Payload) -> None:
        self._sequence += 1
        self._take(Delivered([Delivery(self._sequence, payload)], self.now_ms))

    def ledger(self, name: str = TOPIC) -> MoodyLedger:
        return (self.volatile if name.startswith("non-") else self.store).moody[name]

    def client(
        self,
        *,
        protocol_version: int = 20,
        version: str = "test",
        peer: tuple[str, int] = ("127.0.0.1", 1234),
    ) -> FakeClient:
        connection = BrokerConnection(self.keep_alive, self.front.shared)
        return FakeClient(connection, protocol_version, version, peer)

    async def stop(self) -> None:
        await self.topics.close()
        self.keep_alive.close()

    def _take(self, given: Any) -> None:
        self.agent._take(given)


class DirectoryLists(FakeTopicLists):
    """Lists what the fake directory has, and lets it be watched."""

    def __init__(self, directory: FakeDirectory) -> None:
        super().__init__()
        self.names = directory.topics
        self._listed = ListedTopics(directory)

    async def current(self, question: ListQuestion) -> TopicList:
        return await self._listed.current(question)


class BrokerWorld:
    """Any number of brokers over one storage."""

    def __init__(self, *, policy: StoragePolicy = POLICY) -> None:
        self.policy = policy
        self.disk = MemoryLedgers()
        self.wall_clock_ms = 1_700_000_000_000
        self.brokers: dict[str, FakeBroker] = {}
        self.directory = FakeDirectory(self)
        self.topic_lists = DirectoryLists(self.directory)
        self.topic_list_settings = DEFAULT_TOPIC_LISTS
        self.broker_limits = NO_BROKER_LIMITS
        self.layouts: FakeLayouts | None = None
        """None: brokers refuse the commands of scalable topics."""
        self.shadows_of: Callable[[str], ShadowLedgers | None] = lambda _: None
        """What the broker of an id opens shadows with; None: it opens none."""

    def clock(self) -> int:
        return self.wall_clock_ms

    def broker(self, broker_id: str = "a") -> FakeBroker:
        """Return the broker of this id, which begins to exist if need be."""
        if broker_id not in self.brokers:
            self.brokers[broker_id] = FakeBroker(self, broker_id)
        return self.brokers[broker_id]

    def assign(
        self,
        name: str,
        broker_id: str,
        *,
        used_epoch: int = 0,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Make a broker the next owner of a topic, without a release by the earlier owner."""
        _, epoch = self.directory.owners.get(name, ("", 0))
        epoch = max(epoch, used_epoch)
        self.directory.topics.add(name)
        self.directory.owners[name] = (broker_id, epoch + 1)
        parsed = parse_topic(name)
        renamed = self.directory.renamed.get(parsed.base_text)
        former_names = () if renamed is None else renamed.former_names
        topic = TopicMetadata(
            self.directory.id_of(parsed.base_text),
            parsed.base_text,
            0,
            properties,
            1 + len(former_names),
            former_names=former_names,
        )
        self.broker(broker_id).deliver(Assignment(topic, parsed.unit.text, name, epoch + 1, 1))

    def move(self, name: str, to: str) -> None:
        """Have another broker own a topic, and have the old owner let go of it."""
        before, epoch = self.directory.owners[name]
        self.assign(name, to)
        self.release(name, before, epoch, to)

    def rename(self, name: str, new_name: str, *, grace_ms: int, is_released: bool = True) -> None:
        """Rename a topic with one unit: its owner, if it has one, releases it, or will later."""
        former = self.directory.renamed.get(name)
        earlier = () if former is None else former.former_names
        topic_id = self.directory.id_of(name)
        broker_id, epoch = self.directory.owners.pop(name, ("", 0))
        self.directory.topics.remove(name)
        self.directory.topics.add(new_name)
        self.directory.renamed.pop(name, None)
        self.directory.renamed[new_name] = Renamed(
            topic_id, (*earlier, OldName(name, self.clock() + grace_ms))
        )
        self.directory.owners[new_name] = ("", epoch)
        if broker_id and is_released:
            release = Release(topic_id, "", name, epoch, "", 0, "", "")
            self.broker(broker_id).deliver(release)

    def release(self, name: str, broker_id: str, epoch: int, to: str = "") -> None:
        parsed = parse_topic(name)
        self.broker(broker_id).deliver(
            Release(
                self.directory.id_of(parsed.base_text),
                parsed.unit.text,
                name,
                epoch,
                to,
                epoch + 1 if to else 0,
                "",
                self.brokers[to].url if to else "",
            )
        )

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()


async def settle(turns: int = 30) -> None:
    """Let everything happen that is due."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any]) -> None:
    """Return once the condition holds; fails if it does not in time."""
    for _ in range(TURNS_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it has not come about")


class FakeClient:
    """One connection, driven command by command."""

    def __init__(
        self,
        connection: BrokerConnection,
        protocol_version: int,
        version: str,
        peer: tuple[str, int],
    ) -> None:
        self.connection = connection
        self.transport = MemoryTransport(connection, peer=peer)
        self.commands: list[pulsar.BaseCommand] = []
        """All that came, in order; ``look`` adds to it."""
        self._reader = FrameReader()
        self._requests = 0
        self._looked_at = 0
        self.send_raw(
            pulsar.BaseCommand(
                type=pulsar.BaseCommand.CONNECT,
                connect=pulsar.CommandConnect(
                    client_version=version, protocol_version=protocol_version
                ),
            )
        )

    # Sending ---------------------------------------------------------------------------------

    def send_raw(self, command: pulsar.BaseCommand, payload: bytes | None = None) -> None:
        frame = encode_command(command) if payload is None else encode_frame(command, payload)
        self.transport.receive(frame)

    def command(self, kind: int, **fields: Any) -> pulsar.BaseCommand:
        command = pulsar.BaseCommand(type=kind)
        inner = getattr(command, FIELD_OF_TYPE[kind])
        inner.SetInParent()
        filled = type(inner)(**fields)
        inner.CopyFrom(filled)
        return command

    def start(self, kind: int, **fields: Any) -> int:
        """Send a request without waiting; return its id."""
        self._requests += 1
        self.send_raw(self.command(kind, request_id=self._requests, **fields))
        return self._requests

    async def request(self, kind: int, **fields: Any) -> Any:
        """Send a request and return what answers it, without its envelope."""
        return await self.answer(self.start(kind, **fields))

    async def answer(self, request_id: int) -> Any:
        await until(lambda: self._answers(request_id))
        return self._answers(request_id)[-1]

    async def producer(self, topic: str = TOPIC, *, producer_id: int = 0, **fields: Any) -> Any:
        return await self.request(
            pulsar.BaseCommand.PRODUCER, topic=topic, producer_id=producer_id, **fields
        )

    async def subscribe(
        self,
        subscription: str = "sub",
        *,
        topic: str = TOPIC,
        consumer_id: int = 0,
        kind: int = pulsar.CommandSubscribe.Exclusive,
        permits: int = 1_000,
        **fields: Any,
    ) -> Any:
        answer = await self.request(
            pulsar.BaseCommand.SUBSCRIBE,
            topic=topic,
            subscription=subscription,
            subType=kind,
            consumer_id=consumer_id,
            **fields,
        )
        if permits and isinstance(answer, pulsar.CommandSuccess):
            self.send_raw(
                self.command(
                    pulsar.BaseCommand.FLOW, consumer_id=consumer_id, messagePermits=permits
                )
            )
        return answer

    def send(
        self,
        sequence_id: int,
        body: bytes = b"x",
        *,
        producer_id: int = 0,
        producer_name: str = "p",
        payload: bytes | None = None,
        **fields: Any,
    ) -> None:
        """Send a message; ``fields`` beginning with ``with_`` are its metadata's."""
        metadata = pulsar.MessageMetadata(
            producer_name=producer_name, sequence_id=sequence_id, publish_time=1
        )
        for key in [key for key in fields if key.startswith("with_")]:
            setattr(metadata, key.removeprefix("with_"), fields.pop(key))
        self.send_raw(
            self.command(
                pulsar.BaseCommand.SEND,
                producer_id=producer_id,
                sequence_id=sequence_id,
                num_messages=max(1, metadata.num_messages_in_batch),
                **fields,
            ),
            message_payload(metadata, body) if payload is None else payload,
        )

    def ack(self, message: Any, *, consumer_id: int = 0, is_cumulative: bool = False) -> int:
        """Acknowledge a MESSAGE with a request id, which is returned."""
        return self.start(
            pulsar.BaseCommand.ACK,
            consumer_id=consumer_id,
            ack_type=int(is_cumulative),
            message_id=[message.message_id],
        )

    def leave(self) -> None:
        """Break the connection."""
        self.transport.abort()

    # What came -------------------------------------------------------------------------------

    def look(self) -> list[pulsar.BaseCommand]:
        """Return all commands that came so far."""
        written = self.transport.writes
        for data in written[self._looked_at :]:
            self.commands += [parse_command(frame.command) for frame in self._reader.feed(data)]
        self._looked_at = len(written)
        return self.commands

    def got(self, kind: int) -> list[Any]:
        """Return all commands of a kind, without their envelopes."""
        return [
            getattr(command, FIELD_OF_TYPE[kind]) for command in self.look() if command.type == kind
        ]

    async def until_got(self, kind: int, count: int = 1) -> list[Any]:
        await until(lambda: len(self.got(kind)) >= count)
        return self.got(kind)

    async def receipts(self, count: int) -> list[tuple[int, int, int]]:
        """Return sequence id, ledger and entry of the next receipts; -1 for duplicates."""
        return [
            (
                receipt.sequence_id,
                _signed(receipt.message_id.ledgerId),
                _signed(receipt.message_id.entryId),
            )
            for receipt in await self.until_got(pulsar.BaseCommand.SEND_RECEIPT, count)
        ]

    @property
    def kinds(self) -> list[str]:
        return [pulsar.BaseCommand.Type.Name(each.type) for each in self.look()]

    def _answers(self, request_id: int) -> list[Any]:
        found = []
        for command in self.look():
            inner = getattr(command, FIELD_OF_TYPE[command.type])
            if "request_id" in inner.DESCRIPTOR.fields_by_name and inner.request_id == request_id:
                found.append(inner)
        return found


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number
