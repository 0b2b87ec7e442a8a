"""Whatever happens in whatever order, brokers end with what the home shards have.

Home shards change, streams lag, begin again and are ended, assignments arrive late, brokers do
not sync, and leaders follow each other: drawn at random, on real sessions and a real watch.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nextgen.kernel.errors import Overloaded
from protos.nextgen.v1.broker_service_pb2 import Delivery
from protos.nextgen.v1.inventory_pb2 import KIND_TOPIC
from protos.nextgen.v1.shard_service_pb2 import TopicAssignment
from shards.sessions import home_watch
from shards.sessions.metadata_state import id_of
from tests.support.shards.metadata_world import GATHER_S, HeldBroker, MetadataWorld
from tests.support.simulated.virtual_time import run_virtual

BROKERS = ("a", "b", "c")
TOPICS = tuple(f"persistent://acme/ns-{number % 2}/t-{number}" for number in range(4))
PARENTS = ("acme", "acme/ns-0", "acme/ns-1")

STEPS = st.one_of(
    st.tuples(st.just("set"), st.sampled_from((*TOPICS, *PARENTS))),
    st.tuples(st.just("recreate"), st.sampled_from(TOPICS)),
    st.tuples(st.just("recreate parent"), st.sampled_from(PARENTS)),
    st.tuples(st.just("decide"), st.sampled_from(TOPICS), st.sampled_from(BROKERS)),
    st.tuples(st.just("send")),
    st.tuples(st.just("release"), st.sampled_from(TOPICS)),
    st.tuples(st.just("tell"), st.integers(0, 3), st.integers(1, 3)),
    st.tuples(st.just("pass")),
    st.tuples(st.just("sync"), st.sampled_from(BROKERS)),
    st.tuples(st.just("reconnect"), st.sampled_from(BROKERS)),
    st.tuples(st.just("report"), st.sampled_from(BROKERS)),
    st.tuples(st.just("reset")),
    st.tuples(st.just("end")),
    st.tuples(st.just("lead")),
)


class _Controller:
    """Decides who has which topic, sends it late, and sends it again to a new leader."""

    def __init__(self, world: MetadataWorld) -> None:
        self._world = world
        self._owners: dict[str, tuple[str, TopicAssignment]] = {}
        self._unsent: list[tuple[str, TopicAssignment, bool]] = []
        self._unsynced: list[tuple[str, TopicAssignment, bool]] = []

    def decide(self, topic: str, broker_id: str) -> None:
        self.release(topic)
        assignment = self._world.prepare(topic)
        self._owners[topic] = (broker_id, assignment)
        self._unsent.append((broker_id, assignment, False))

    def release(self, topic: str) -> None:
        owned = self._owners.pop(topic, None)
        if owned is not None:
            self._unsent.append((*owned, True))

    def send(self) -> None:
        if self._unsent:
            order = self._unsent.pop(0)
            self._unsynced.append(order)
            broker_id, assignment, is_release = order
            if is_release:
                self._world.release(broker_id, assignment)
            else:
                self._world.assign(broker_id, assignment)

    def synced(self, broker_id: str) -> None:
        self._unsynced = [order for order in self._unsynced if order[0] != broker_id]

    def repeat(self) -> None:
        """Send everything again of which it is not known that the broker has it."""
        self._unsent = [*self._unsynced, *self._unsent]
        self._unsynced = []

    def send_all(self) -> None:
        while self._unsent:
            self.send()


class _Run:
    def __init__(self) -> None:
        self.world = MetadataWorld(*BROKERS, shards=2)
        self.world.create_topics(*TOPICS)
        self.controller = _Controller(self.world)
        self._values = 0
        self._reported: set[str] = set(BROKERS)

    async def step(self, what: str, *given: object) -> None:
        getattr(self, "_" + what.replace(" ", "_"))(*given)
        if what == "pass":
            await asyncio.sleep(2 * GATHER_S)
        await asyncio.sleep(0)

    async def finish(self) -> None:
        self.controller.repeat()
        self.controller.send_all()
        for broker_id in BROKERS:
            self._report(broker_id)
        await self.world.settle()

    def _set(self, name: str) -> None:
        self._values += 1
        if self.world.homes.state(name) is not None:
            self.world.homes.set_properties(name, value=str(self._values))

    def _recreate(self, topic: str) -> None:
        """Delete it, which releases it, and create another of its name."""
        self.controller.release(topic)
        self.world.homes.delete(topic)
        self.world.homes.create(KIND_TOPIC, topic)

    def _recreate_parent(self, name: str) -> None:
        """Delete everything below it too, as the rules of deletion want it."""
        below = [each for each in TOPICS if each.startswith(f"persistent://{name}/")]
        namespaces = [each for each in PARENTS if each.startswith(f"{name}/")]
        for each in below:
            self.controller.release(each)
        self.controller.send_all()
        for each in (*below, *namespaces, name):
            self.world.homes.delete(each)
        self.world.create_topics(*TOPICS)

    def _decide(self, topic: str, broker_id: str) -> None:
        self.controller.decide(topic, broker_id)

    def _send(self) -> None:
        self.controller.send()

    def _release(self, topic: str) -> None:
        self.controller.release(topic)

    def _tell(self, behind: int, every: int) -> None:
        self.world.homes.deliver(behind=behind, every=every)

    def _pass(self) -> None:
        pass

    def _sync(self, broker_id: str) -> None:
        self.world.sync(broker_id)
        self.controller.synced(broker_id)

    def _reconnect(self, broker_id: str) -> None:
        self.world.brokers[broker_id].connect()

    def _report(self, broker_id: str) -> None:
        if broker_id not in self._reported:
            self._reported.add(broker_id)
            self.world.report(broker_id)

    def _reset(self) -> None:
        for stream in self.world.homes.streams:
            stream.reset()

    def _end(self) -> None:
        self.world.homes.end_watches(Overloaded("ended"))

    def _lead(self) -> None:
        self.world.next_leader()
        self._reported.clear()
        self.controller.repeat()


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_every_broker_converges_and_gets_no_change_twice(steps: list[tuple[object, ...]]) -> None:
    async def main() -> None:
        run = _Run()
        try:
            for step in steps:
                await run.step(*step)  # type: ignore[arg-type]
            await run.finish()
            run.world.check_converged()
            _check_owned(run)
            for broker in run.world.brokers.values():
                _check_told(broker)
        finally:
            run.world.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home_watch, "METADATA_LOOSE_WATCHES_MAX", 2)
        run_virtual(main)


def _check_owned(run: _Run) -> None:
    """What is decided arrived: a broker that holds nothing would converge as well."""
    for topic, (broker_id, assignment) in run.controller._owners.items():
        holding = run.world.brokers[broker_id].holding
        assert holding.assigned(topic) is not None
        state = run.world.homes.state(topic)
        assert state is not None
        assert id_of(state) == assignment.topic.topic_id
        assert holding.topics[assignment.topic.topic_id].version == state.version
        assert holding.tenants
        assert holding.namespaces


def _check_told(broker: HeldBroker) -> None:
    """No topic was sent while none of its units was held, and no version of it twice."""
    versions: dict[str, set[int]] = defaultdict(set)
    units: dict[str, set[str]] = defaultdict(set)
    for delivery in broker.received:
        match delivery.WhichOneof("body"):
            case "assign":
                units[delivery.assign.topic.topic_id].add(delivery.assign.unit)
            case "release":
                units[delivery.release.topic_id].discard(delivery.release.unit)
                versions.pop(delivery.release.topic_id, None)
            case "topic":
                _check_topic(delivery, units, versions)
            case "removed" if delivery.removed.kind == KIND_TOPIC:
                assert units[delivery.removed.id], "removed and not held"


def _check_topic(
    delivery: Delivery, units: dict[str, set[str]], versions: dict[str, set[int]]
) -> None:
    topic = delivery.topic
    assert units[topic.topic_id], f"{topic.name} was told and is not held"
    assert topic.version not in versions[topic.topic_id], f"{topic.name} was told twice"
    versions[topic.topic_id].add(topic.version)
