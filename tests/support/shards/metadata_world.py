"""Broker sessions of one broker manager and what they have, without a shard: fake home shards, the
real watch, the real sequence of each session and the real rules of a broker.

    world.assign("broker-1", topic)   # as the broker manager does, metadata first
    world.homes.set_properties(topic, a="b")
    await world.settle()              # everything that is to be told is told and synced
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from brokers.domain.holding import Holding
from brokers.domain.session import BrokerSession as BrokerSide
from brokers.domain.session import Delivered, Established
from brokers.wire import from_manager, held_pages
from nextgen.kernel.limits.stream import METADATA_GATHER_MS, METADATA_WATCH_RETRY_MS
from nextgen.kernel.routing.names import parse_topic
from protos.nextgen.v1.broker_service_pb2 import Delivery
from protos.nextgen.v1.events_pb2 import BrokerRecorded
from protos.nextgen.v1.inventory_pb2 import KIND_NAMESPACE, KIND_TENANT, KIND_TOPIC, Item, Kind
from protos.nextgen.v1.shard_service_pb2 import TopicAssignment, TopicRelease
from shards.domain.topic import Topic
from shards.sessions.metadata_state import id_of
from shards.sessions.metadata_watch import MetadataWatch
from shards.sessions.session_metadata import parent_id
from shards.sessions.session_soft_state import BrokerConnection, SessionSoftState
from shards.wire.inventory import item_message, topic_message
from tests.support.shards.harness import VirtualClock
from tests.support.shards.home_shards import FakeHomes
from tests.support.simulated.virtual_time import run_virtual

GATHER_S = METADATA_GATHER_MS / 1000
RETRY_S = METADATA_WATCH_RETRY_MS / 1000


class HeldBroker:
    """A broker with its held metadata, and its session at the present leader."""

    def __init__(self, broker_id: str) -> None:
        self.broker_id = broker_id
        self.side = BrokerSide()
        self.side.step(Established(f"session-{broker_id}", 1, False, 1))
        self.received: list[Delivery] = []
        self.session: SessionSoftState
        self.connection: BrokerConnection

    @property
    def holding(self) -> Holding:
        return self.side.holding

    @property
    def changes(self) -> list[Delivery]:
        """The metadata that it was sent apart from assignments, by all leaders."""
        return [each for each in self.received if not _is_of_units(each)]

    def attach(self, *, is_known: bool) -> None:
        """Come to a leader that began the session, or to one that knows nothing of it."""
        record = BrokerRecorded(broker_id=self.broker_id, session_id=self.side.session_id)
        self.session = SessionSoftState(record, 0.0)
        self.session.metadata.awaits_report = not is_known
        self.connect()

    def connect(self) -> None:
        self.connection = BrokerConnection(self.session)
        self.session.attach(self.connection, self.side.applied_sequence)

    def take(self) -> None:
        """Apply what was sent."""
        for message in self.connection.take_messages():
            self.received += message.deliveries.deliveries
            given = from_manager(message, 0)
            assert isinstance(given, Delivered)
            self.side.step(given)


class MetadataWorld:
    """Brokers of one manager. ``deliveries`` counts changes by kind, over all leaders."""

    def __init__(self, *broker_ids: str, shards: int = 1) -> None:
        self.homes = FakeHomes(shards)
        self.deliveries: Counter[str] = Counter()
        self.epochs: Counter[str] = Counter()
        self.terms = 1
        self.watch = self._new_watch()
        self.brokers = {broker_id: HeldBroker(broker_id) for broker_id in broker_ids}
        for broker in self.brokers.values():
            broker.attach(is_known=True)

    def close(self) -> None:
        self.watch.close()

    def next_leader(self) -> None:
        """Connect every broker to a leader that does not know what it holds."""
        self.watch.close()
        self.terms += 1
        self.watch = self._new_watch()
        for broker in self.brokers.values():
            broker.attach(is_known=False)

    def report(self, broker_id: str) -> None:
        """Make a broker report what it holds."""
        broker = self.brokers[broker_id]
        for page in held_pages(broker.holding):
            self.watch.take_report(broker.session, page)

    # Inventory --------------------------------------------------------------------------------

    def create_topics(self, *names: str) -> None:
        """Create topics, and the tenants and namespaces that are not there."""
        for name in names:
            topic = parse_topic(name)
            for kind, each in (
                (KIND_TENANT, topic.tenant),
                (KIND_NAMESPACE, topic.namespace_text),
                (KIND_TOPIC, topic.base_text),
            ):
                if self.homes.state(each) is None:
                    self.homes.create(kind, each)

    # As the broker manager --------------------------------------------------------------------

    def prepare(self, name: str) -> TopicAssignment:
        """Return the next assignment of a topic or partition, its metadata as it is."""
        topic = parse_topic(name)
        state = self.homes.state(topic.base_text)
        assert isinstance(state, Topic)
        self.epochs[name] += 1
        return TopicAssignment(
            topic=topic_message(state), unit=topic.unit.text, name=name, epoch=self.epochs[name]
        )

    def assign(self, broker_id: str, *assignments: TopicAssignment | str) -> None:
        """Send assignments, and before them the parents that the session does not have."""
        session = self.brokers[broker_id].session
        for given in assignments:
            assignment = self.prepare(given) if isinstance(given, str) else given
            topic = parse_topic(assignment.name)
            if not session.metadata.has_parent(topic.namespace_text, assignment.topic.namespace_id):
                self._send_parent(session, KIND_TENANT, topic.tenant)
                self._send_parent(session, KIND_NAMESPACE, topic.namespace_text)
            session.append(Delivery(assign=assignment))
            sent = session.metadata.note_assigned(assignment)
            if sent is not None:
                self.watch.hold(sent, assignment.topic)

    def release(self, broker_id: str, assignment: TopicAssignment) -> None:
        session = self.brokers[broker_id].session
        release = TopicRelease(
            topic_id=assignment.topic.topic_id,
            unit=assignment.unit,
            name=assignment.name,
            epoch=assignment.epoch,
        )
        sequence = session.append(Delivery(release=release))
        dropped = session.metadata.note_released(release)
        if dropped is not None:
            self.watch.leave(dropped, sequence)

    def sync(self, broker_id: str) -> None:
        """Make a broker apply what it was sent and acknowledge it."""
        broker = self.brokers[broker_id]
        broker.take()
        broker.session.acknowledge(broker.side.applied_sequence)
        self.watch.deliver_waiting(broker.session)

    async def settle(self) -> None:
        """Return when everything was sent, applied and synced."""
        for _ in range(3):
            await asyncio.sleep(GATHER_S + RETRY_S)
            self.homes.deliver()
            await asyncio.sleep(RETRY_S)
            for broker_id in self.brokers:
                self.sync(broker_id)
            self.watch.synced()

    # What must hold ---------------------------------------------------------------------------

    def check_converged(self) -> None:
        """Everything that a broker holds is as its home shard has it, or is not held."""
        for broker in self.brokers.values():
            holding = broker.holding
            for tenant in holding.tenants.values():
                self._check(KIND_TENANT, tenant.name, tenant.tenant_id, tenant.version)
            for namespace in holding.namespaces.values():
                self._check(
                    KIND_NAMESPACE, namespace.name, namespace.namespace_id, namespace.version
                )
            for topic in holding.topics.values():
                self._check(KIND_TOPIC, topic.name, topic.topic_id, topic.version)
                state = self.homes.state(topic.name)
                assert state is not None
                assert dict(state.properties) == dict(topic.properties), topic.name
            for assignment in holding.assignments.values():
                state = self.homes.state(assignment.topic.name)
                if state is not None and id_of(state) == assignment.topic.topic_id:
                    assert assignment.topic.topic_id in holding.topics, assignment

    def _check(self, kind: Kind, name: str, object_id: str, version: int) -> None:
        state = self.homes.state(name)
        assert state is not None, f"kind {kind}: {name} is gone and held"
        assert (object_id, version) == (id_of(state), state.version), name

    def _send_parent(self, session: SessionSoftState, kind: Kind, name: str) -> None:
        item: Item = item_message(kind, name, self.homes.state(name))
        if session.metadata.has_parent(name, parent_id(item)):
            return
        delivery = Delivery()
        if kind == KIND_TENANT:
            delivery.tenant.CopyFrom(item.tenant)
        else:
            delivery.namespace.CopyFrom(item.namespace)
        session.append(delivery)
        sent, evicted = session.metadata.note_parent(item)
        if evicted is not None:
            self.watch.drop(evicted)
        self.watch.hold(sent)

    def _new_watch(self) -> MetadataWatch:
        return MetadataWatch(
            f"manager-{self.terms}", self.homes, self.homes, VirtualClock(), self._delivered
        )

    def _delivered(self, kind: str) -> None:
        self.deliveries[kind] += 1


def _is_of_units(delivery: Delivery) -> bool:
    return delivery.HasField("assign") or delivery.HasField("release")


def in_world(
    scenario: Callable[[MetadataWorld], Coroutine[Any, Any, None]],
    *broker_ids: str,
    shards: int = 1,
) -> None:
    """Run ``scenario`` in virtual time, with broker a unless others are named."""

    async def main() -> None:
        world = MetadataWorld(*(broker_ids or ("a",)), shards=shards)
        try:
            await scenario(world)
        finally:
            world.close()

    run_virtual(main)


def told(changes: list[Delivery]) -> list[tuple[str, str, int]]:
    """Return kind, name and version of each change, in order; 0 for a removal."""
    said = []
    for change in changes:
        kind = change.WhichOneof("body")
        body = getattr(change, kind)
        said.append((kind, body.name, 0 if kind == "removed" else body.version))
    return said


async def gathered() -> None:
    """Return when the watches are added; no change has been sent on them."""
    await asyncio.sleep(2 * GATHER_S)
