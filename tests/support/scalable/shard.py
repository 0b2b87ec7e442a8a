"""A shard with one scalable topic and some brokers: a real leader, see ``harness``; brokers'
segments as in ``segments``. A test ends leaders and brokers, and has them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from nextgen.kernel.errors import MetadataError
from nextgen.kernel.events.decider import Accepted, fold
from protos.nextgen.v1 import shard_service_pb2 as pb
from shards.domain.scalable.commands import CreateScalableTopic, PruneSegments
from shards.domain.scalable.decider import decide
from shards.domain.scalable.state import INITIAL, ScalableTopic, evolve
from shards.domain.states import StateKind
from shards.domain.topic import Topic, unit_names
from shards.ports import SegmentUnit
from shards.projections.rows import query_of, read_states
from shards.scalable.topic_decisions import TopicDecisions
from tests.support.scalable.segments import Segments
from tests.support.shards.harness import NAMESPACE, Harness
from tests.support.simulated.virtual_time import run_virtual

NAME = f"topic://{NAMESPACE}/paid"
CLASSIC = f"persistent://{NAMESPACE}/paid"
UNITS = 100
T = TypeVar("T")


class ScalableShard:
    """Make it with ``in_scalable_shard``."""

    def __init__(self, directory: Path) -> None:
        self.segments = Segments()
        directory.mkdir(exist_ok=True)
        self.harness = Harness(directory, units=UNITS, segments=self.segments)
        self.segments.holds = self._holds
        self._commands = 0
        self._classic: Topic | None = None

    async def start(self, segments: int, brokers: int, classic: int | None = None) -> None:
        """Start with a topic of some segments, or with a classic one of ``classic`` partitions."""
        for number in range(1, brokers + 1):
            await self.harness.start_broker(f"broker-{number}", UNITS)
        await self.harness.execute(create_tenant=pb.CreateTenant(name="acme"))
        await self.harness.execute(create_namespace=pb.CreateNamespace(name=NAMESPACE))
        spec = pb.TopicSpec(name=NAME, segments=segments)
        if classic is not None:
            spec = pb.TopicSpec(name=CLASSIC, partitions=classic)
            self._classic = Topic("", CLASSIC, classic, 1, "", 0, ())
        result = await self.harness.execute(create_topics=pb.CreateTopics(topics=[spec]))
        assert not result.topics[0].rejection_code, result

    # The topic --------------------------------------------------------------------------------

    @property
    def topic(self) -> ScalableTopic:
        """The topic as it is committed; a classic one as its producers see it."""
        states = read_states(query_of(self.harness.view.reader), StateKind.SCALABLE_TOPIC, [NAME])
        topic = states[NAME]
        if topic is None and self._classic is not None:
            order = CreateScalableTopic(NAME, "", 0, 0, unit_names(self._classic))
            decision = decide(None, order)
            assert isinstance(decision, Accepted)
            topic = fold(evolve, INITIAL, decision.events)
        assert isinstance(topic, ScalableTopic)
        return topic

    def classic_topic(self) -> Any:
        """Return the classic topic as it is committed, None if there is none."""
        states = read_states(query_of(self.harness.view.reader), StateKind.TOPIC, [CLASSIC])
        return states[CLASSIC]

    @property
    def units(self) -> dict[str, str]:
        """The segments by the texts of their units, and ``active``, ``sealed`` or ``planned``."""
        topic = self.topic
        found = {
            each.unit.text: "sealed" if each.is_sealed else "active"
            for each in topic.segments.values()
        }
        if topic.operation is not None:
            found.update((each.unit.text, "planned") for each in topic.operation.children)
        return found

    # Commands ---------------------------------------------------------------------------------

    async def change(self, kind: str, *segments: int, buckets: int = 0) -> pb.CommandResult:
        body = pb.ChangeLayout(name=NAME, kind=kind, segments=segments, buckets=buckets)
        return await self.run(change_layout=body)

    async def migrate(self) -> pb.TopicOutcome:
        spec = pb.TopicSpec(name=NAME, migrates=True)
        result = await self.run(create_topics=pb.CreateTopics(topics=[spec]))
        return result.topics[0]

    async def subscribe(self, name: str, type_: str = "stream") -> pb.CommandResult:
        body = pb.CreateScalableSubscription(name=NAME, subscription=name, type=type_)
        return await self.run(create_scalable_subscription=body)

    async def unsubscribe(self, name: str) -> pb.CommandResult:
        body = pb.DeleteScalableSubscription(name=NAME, subscription=name)
        return await self.run(delete_scalable_subscription=body)

    async def prune(self, *segments: int) -> None:
        """Prune segments at once, whatever their retention."""
        decisions = TopicDecisions(self.harness.leader.state, NAME)
        await decisions.decide(self.topic.topic_id, PruneSegments(segments))
        self.harness.leader.scalable.resume(NAME)

    async def run(self, **body: Any) -> pb.CommandResult:
        """Send a command until it is answered, with one id as clients do."""
        self._commands += 1
        command_id = self._commands.to_bytes(16, "big")
        while True:
            try:
                return await self.harness.execute(command_id=command_id, **body)
            except MetadataError:
                await asyncio.sleep(0.02)

    # Brokers and leaders ----------------------------------------------------------------------

    def owner(self, unit: str) -> str:
        """Return the broker that a unit is assigned to, "" for none."""
        topic_id = self.topic.topic_id
        if not unit.startswith("s"):
            topic_id = self.classic_topic().topic_id
        key = f"{topic_id}/{unit}"
        states = read_states(query_of(self.harness.view.reader), StateKind.ASSIGNMENT, [key])
        assignment: Any = states[key]
        return "" if assignment is None else assignment.broker_id

    def stop_broker(self, broker_id: str) -> None:
        """Let a broker be gone without a word."""
        self.segments.down.add(endpoint_of(broker_id))
        self.harness.brokers[broker_id].vanish()

    async def start_broker(self, broker_id: str) -> None:
        """Let a broker begin again, as a new process."""
        self.segments.down.discard(endpoint_of(broker_id))
        await self.harness.start_broker(broker_id, UNITS)

    def stop_leader(self) -> None:
        """Let the leader be gone: what it proposed and is not committed is lost."""
        for broker in self.harness.brokers.values():
            broker.vanish()
        self.harness.log.lose_leadership()

    async def start_leader(self) -> None:
        """Let another leader be elected, which brokers find at once."""
        self.harness.next_term()
        await self.connect_brokers()

    def depose_leader(self) -> Callable[[], None]:
        """Let another leader be elected; this one learns of it when the returned function is
        called. The brokers have to be connected."""
        return self.harness.depose()

    async def connect_brokers(self) -> None:
        """Let the brokers that are up find the leader."""
        for broker_id, broker in self.harness.brokers.items():
            if endpoint_of(broker_id) not in self.segments.down:
                await broker.connect()

    async def close(self) -> None:
        await self.harness.close()

    def _holds(self, unit: SegmentUnit) -> bool:
        broker = self.harness.brokers[unit.endpoint.partition(":")[0]]
        held = [*broker.assigned, *broker.taken_over]
        epochs = [epoch for name, epoch in held if name == unit.name]
        gone = [epoch for name, epoch, _ in broker.released if name == unit.name]
        return unit.epoch in epochs and all(epoch < unit.epoch for epoch in gone)


def endpoint_of(broker_id: str) -> str:
    return f"{broker_id}:1"


def in_scalable_shard(
    directory: Path,
    scenario: Callable[[ScalableShard], Coroutine[Any, Any, T]],
    *,
    segments: int = 1,
    brokers: int = 2,
    classic: int | None = None,
) -> T:
    """Run ``scenario`` with a topic of some segments, in virtual time; or with a classic one of
    ``classic`` partitions."""

    async def main() -> T:
        shard = ScalableShard(directory)
        try:
            await shard.start(segments, brokers, classic)
            return await scenario(shard)
        finally:
            await shard.close()

    return run_virtual(main)
